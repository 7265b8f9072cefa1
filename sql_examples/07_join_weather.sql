-- Join on an expression: does bad sight delay departures?
-- The weather is known by airport and hour.
SELECT w.visib < 2 AS bad_sight, count(*) AS flights, avg(f.dep_delay) AS mean_delay
FROM flights AS f
JOIN weather AS w
  ON w.origin = f.origin AND w.time_hour = date_trunc('hour', f.scheduled_at)
GROUP BY w.visib < 2;
