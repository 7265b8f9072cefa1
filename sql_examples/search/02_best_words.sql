-- The best texts for some words
-- Scores count words over all live rows, wherever they are stored.
SELECT id, kind, _score
FROM full_text_search('docs', 'text', 'parse a date from a string', 5)
ORDER BY _score DESC;
