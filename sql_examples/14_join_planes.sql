-- Join three tables: where the oldest planes still flew
-- Filters on an ordinary table reach the MemWAL table through the join.
SELECT p.year AS built, p.manufacturer, a.name AS airline, count(*) AS flights
FROM flights AS f
JOIN planes AS p ON p.tailnum = f.tailnum
JOIN airlines AS a ON a.carrier = f.carrier
WHERE p.year < 1975
GROUP BY p.year, p.manufacturer, a.name;
