-- CTE: days with far more late flights than usual
-- WITH names a query that is used twice.
WITH days AS (
  SELECT flight_date,
         count(*) AS flights,
         count(*) FILTER (WHERE dep_delay > 0) AS late
  FROM flights
  GROUP BY flight_date
)
SELECT flight_date, flights, late
FROM days
WHERE late > 1.1 * (SELECT avg(late) FROM days)
ORDER BY flight_date;
