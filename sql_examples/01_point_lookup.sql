-- Point lookup: one flight by its full primary key
-- Only its carrier's region is read, newest source first, and bloom filters skip the others.
SELECT flight_date, carrier, flight, origin, dest, dep_delay, arr_delay
FROM flights
WHERE flight_date = DATE '2013-01-01' AND carrier = 'UA' AND flight = 1545 AND origin = 'EWR';
