-- Filter on a column outside the key
-- The filter is pushed into every source, but it never decides which version of a row is newest.
SELECT flight_date, carrier, flight, origin, dest, dep_delay
FROM flights
WHERE dep_delay > 300 AND origin <> 'LGA';
