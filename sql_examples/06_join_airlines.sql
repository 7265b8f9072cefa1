-- Join with an ordinary table
-- Any table of the session joins with a MemWAL table; statistics choose the build side.
SELECT a.name, count(*) AS flights, avg(f.arr_delay) AS mean_arrival_delay
FROM flights AS f
JOIN airlines AS a ON a.carrier = f.carrier
GROUP BY a.name
ORDER BY flights DESC, a.name;
