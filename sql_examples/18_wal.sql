-- Metadata: the write-ahead log
-- What is not flushed yet would be replayed from here after a crash.
SELECT region, count(*) AS entries, sum(num_rows) AS rows,
       sum(num_rows) FILTER (WHERE NOT flushed) AS rows_to_replay
FROM flights$wal
GROUP BY region
ORDER BY region;
