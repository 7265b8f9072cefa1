-- The texts that mean nearly the same as a question
-- $q is the question's vector; every source is searched, and replaced rows are none of the five.
SELECT id, kind, _distance
FROM vector_search('docs', 'v', $q, 5)
ORDER BY _distance;
