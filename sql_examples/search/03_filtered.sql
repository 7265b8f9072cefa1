-- A condition chooses what is ranked: five classes come back
-- It is applied in every source before the best rows are chosen, and changes no score.
SELECT id, length, _score
FROM full_text_search('docs', 'text', 'queue of threads', 5)
WHERE kind = 'class' AND length(module) < 20
ORDER BY _score DESC;
