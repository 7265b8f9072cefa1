-- EXPLAIN ANALYZE: the plan that ran, with what every node did
-- Sources newest first in each region; DeduplicateExec drops what a newer source replaced.
EXPLAIN ANALYZE
SELECT carrier, max(arr_delay) FROM flights WHERE carrier IN ('UA', 'HA') GROUP BY carrier;
