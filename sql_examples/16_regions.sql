-- Metadata: the regions of the table
-- Beside every table there are name$regions, name$generations, name$wal and name$indexes.
SELECT region, writer_epoch, flushed_generations, unflushed_rows
FROM flights$regions
ORDER BY region;
