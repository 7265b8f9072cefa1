-- A search joined with the table itself
-- The modules of the twenty nearest texts, with the number of texts each has in all.
SELECT s.module, count(*) AS found, max(m.texts) AS of
FROM vector_search('docs', 'v', $q, 20, {nprobes: 32}) s
JOIN (SELECT module, count(*) AS texts FROM docs GROUP BY module) m ON s.module = m.module
GROUP BY s.module
ORDER BY found DESC, s.module;
