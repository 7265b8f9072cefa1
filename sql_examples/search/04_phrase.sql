-- A phrase, and words that must not be there
-- Queries in JSON have the shapes of lance.query: match, phrase, boolean, boost, multi_match.
SELECT id, _score
FROM full_text_search('docs', 'text', '{"boolean": {
    "must": [{"phrase": {"query": "regular expression"}}],
    "must_not": [{"match": {"query": "deprecated"}}]}}', 5)
ORDER BY _score DESC;
