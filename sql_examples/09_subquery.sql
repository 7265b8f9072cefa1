-- Subquery: flights far worse than their carrier's average
-- The inner query is answered once for all carriers.
SELECT f.flight_date, f.carrier, f.flight, f.origin, f.arr_delay
FROM flights AS f
WHERE f.arr_delay > 240 + (
  SELECT avg(g.arr_delay) FROM flights AS g WHERE g.carrier = f.carrier
);
