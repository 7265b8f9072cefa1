-- Words as they are typed
-- A word may differ by one letter from those that the texts have.
SELECT id, _score
FROM full_text_search('docs', 'text', 'regulr expresion', 5, {fuzziness: 1})
ORDER BY _score DESC;
