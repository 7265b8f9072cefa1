-- Counting everything
-- Exact at any moment: replaced and deleted rows do not count.
SELECT count(*) AS flights, count(DISTINCT tailnum) AS planes FROM flights;
