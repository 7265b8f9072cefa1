-- Self-join: planes that left New York twice on one day, from two airports
-- Both sides read the same snapshot of the table.
SELECT a.flight_date, a.tailnum, a.origin AS first_airport, b.origin AS second_airport
FROM flights AS a
JOIN flights AS b
  ON a.tailnum = b.tailnum AND a.flight_date = b.flight_date
WHERE a.scheduled_at < b.scheduled_at AND a.origin <> b.origin;
