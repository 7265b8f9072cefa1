-- Top ten: the longest delays
-- A sort with a limit keeps ten rows in memory, however long the table is.
SELECT dep_delay, flight_date, carrier, flight, origin, dest
FROM flights
WHERE dep_delay IS NOT NULL
ORDER BY dep_delay DESC, flight_date, carrier, flight, origin
LIMIT 10;
