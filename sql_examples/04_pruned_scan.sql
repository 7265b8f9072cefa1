-- Pruned scan: the WHERE clause pins the region column
-- Regions are made by carrier, so this reads one region and the base table.
SELECT flight_date, flight, dep_delay, arr_delay
FROM flights
WHERE carrier = 'HA' AND arr_delay > 0;
