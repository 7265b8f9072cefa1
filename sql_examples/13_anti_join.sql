-- Anti-join: destinations that the airports table does not know
-- NOT EXISTS becomes an anti-join.
SELECT DISTINCT f.dest
FROM flights AS f
WHERE NOT EXISTS (SELECT 1 FROM airports AS p WHERE p.faa = f.dest);
