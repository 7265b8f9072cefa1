-- GROUP BY: punctuality of each airport
-- Only the columns that are asked for are read.
SELECT origin,
       count(*) AS flights,
       avg(dep_delay) AS mean_delay,
       count(*) FILTER (WHERE dep_delay > 60) AS over_an_hour
FROM flights
GROUP BY origin
ORDER BY origin;
