-- Metadata: generations, flushed and in memory
-- A flushed generation is one MemTable written out: a Lance table of its own until it is merged.
SELECT state, count(*) AS generations, sum(num_rows) AS rows, sum(bytes) AS bytes
FROM flights$generations
GROUP BY state;
