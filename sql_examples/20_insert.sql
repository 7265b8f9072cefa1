-- INSERT is an upsert: rows with a known key replace the ones that are there
-- Here United Airlines corrects the departure delays of one day by five minutes.
INSERT INTO flights
SELECT * REPLACE (dep_delay - 5 AS dep_delay)
FROM flights
WHERE carrier = 'UA' AND flight_date = DATE '2013-01-01';
