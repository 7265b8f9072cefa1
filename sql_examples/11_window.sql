-- Window function: the worst departure of each airport on each day
-- Ranks are given among live rows only.
SELECT flight_date, origin, carrier, flight, dep_delay
FROM (
  SELECT flight_date, origin, carrier, flight, dep_delay,
         row_number() OVER (
           PARTITION BY flight_date, origin ORDER BY dep_delay DESC, carrier, flight
         ) AS place
  FROM flights
)
WHERE place = 1
ORDER BY dep_delay DESC, flight_date, origin
LIMIT 10;
