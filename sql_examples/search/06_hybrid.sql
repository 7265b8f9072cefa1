-- Meaning and words together
-- The two rankings are fused by reciprocal rank; a row may be known to one of them only.
SELECT id, _relevance_score, _distance, _score
FROM hybrid_search('docs', 'v', $q, 'text', 'parse date', 5, {text_weight: 1.5})
ORDER BY _relevance_score DESC;
