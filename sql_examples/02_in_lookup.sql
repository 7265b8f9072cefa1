-- IN lookup: a few flights by key
-- Each key becomes a lookup of its own; a list too long for that becomes a scan.
SELECT flight, dest, dep_time, dep_delay, tailnum
FROM flights
WHERE flight_date = DATE '2013-01-01' AND carrier = 'UA' AND origin = 'EWR'
  AND flight IN (1545, 1696, 1124, 99999);
