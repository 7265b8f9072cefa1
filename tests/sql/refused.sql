-- Searches that are refused in queries of DataFusion, and what the errors say (a regular expression).
-- {nearest} and {best} are searches of the table events; `found` is a view of {nearest}.

-- calls that do not fit
SELECT * FROM vector_search('nope', 'v', [1], 1) !! 'nope' is not a table .* there are .*'events'
SELECT * FROM vector_search('events') !! 1 arguments are given
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 1, NULL, 2) !! 6 arguments are given
SELECT * FROM vector_search("events", 'v', [1, 2, 3, 4]) !! the table must be a literal
SELECT * FROM vector_search('events', v, [1, 2, 3, 4]) !! single quotes
SELECT * FROM vector_search('events', 'v', $1) !! take Python values
SELECT * FROM vector_search('events', 'v', [1, 2]) !! 2 dimensions
SELECT * FROM vector_search('events', 'v', [1, NULL, 2, 3]) !! element 1 of the query is null
SELECT * FROM vector_search('events', 'v', [1, 'NaN'::double, 2, 3]) !! finite
SELECT * FROM vector_search('events', 'v', 'words') !! not a vector
SELECT * FROM vector_search('events', 'v', NULL) !! not a vector
SELECT * FROM vector_search('events', 'v', []) !! not a vector
SELECT * FROM vector_search('events', 'v', [0, 0, 0, 0], 3, {metric: 'cosine'}) !! zero vector
SELECT * FROM vector_search('events', 'body', [1, 2, 3, 4]) !! holds no vectors
SELECT * FROM vector_search('events', 'nope', [1, 2, 3, 4]) !! not a column
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 0) !! k=0
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], -3) !! k=-3
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 2.5) !! k=2.5
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], NULL) !! k=None must be a whole number
SELECT * FROM full_text_search('events', 'body', 'log', NULL, {operator: 'AND'}) !! k=None
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, {nprobe: 2}) !! \['nprobe'\]
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, {nprobes: 0}) !! nprobes=0
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, {metric: 'l3'}) !! metric='l3'
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, {exact: 1}) !! exact=1
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, 7) !! must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, 'x') !! not a JSON object
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, '[1]') !! options \[1\] must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, '7') !! options 7 must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, [1]) !! options \[1\] must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, ['ab']) !! must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, [[1, 2, 3]]) !! must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, [['ef', '2']]) !! must be a struct
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, {ef: 3, ef: 4}) !! the options.*duplicate
SELECT * FROM vector_search('events', 'v', [1, 2, 3, 4], 3, '{"ef": 3, "ef": 4}') !! 'ef' twice
SELECT * FROM full_text_search('events', 7, 'log') !! 7 is not a column
SELECT * FROM full_text_search('events', NULL, 'log') !! None is not a column
SELECT * FROM full_text_search('events', [7], 'log') !! 7 is not a column
SELECT * FROM full_text_search('events', {a: 'body'}, 'log') !! is not a column
SELECT * FROM full_text_search('events', true, 'log') !! True is not a column
SELECT * FROM hybrid_search('events', 'v', [1, 2, 3, 4], 7, 'log') !! 7 is not a column
SELECT * FROM full_text_search('events', 'id', 'log') !! there are texts in
SELECT * FROM full_text_search('events', 'body', 7) !! full-text query is 7
SELECT * FROM full_text_search('events', 'body', '{"match": {}}') !! query
SELECT * FROM full_text_search('events', 'body', 'log', 3, {operator: 'XOR'}) !! XOR
SELECT * FROM hybrid_search('events', 'v', [[1, 2, 3, 4], [4, 3, 2, 1]], 'body', 'log') !! one query
SELECT * FROM hybrid_search('events', 'v', [1, 2, 3, 4], 'body', 'log', 3, {vector_weight: -1}) !! vector_weight=-1
SELECT * FROM hybrid_search('events', 'v', [1, 2, 3, 4], 'body', 'log', 3, {rrf_k: 'x'}) !! rrf_k
SELECT * FROM hybrid_search('events', 'v', [1, 2, 3, 4], 'body', 'log', 3, {candidates: 0}) !! candidates=0

-- conditions that can't choose the rows that are ranked, wherever they stand
SELECT id FROM {nearest} WHERE random() < 2 !! random\(\) < 2.* can't choose the rows
SELECT id + 1 AS x FROM {nearest} WHERE id * random() < 9 !! random.* can't choose the rows
SELECT id FROM {nearest} WHERE _distance < random() !! _distance.* can't choose the rows
SELECT id FROM {nearest} WHERE random() < 0.5 LIMIT 3 !! random.* can't choose the rows
SELECT id FROM {nearest} WHERE random() < 0.5 ORDER BY id LIMIT 3 !! random.* can't choose the rows
SELECT count(*) FROM {nearest} WHERE random() < 0.5 !! random.* can't choose the rows
SELECT lang FROM {nearest} WHERE random() < 0.5 GROUP BY lang !! random.* can't choose the rows
SELECT id FROM (SELECT * FROM {nearest} ORDER BY id) WHERE random() < 0.5 !! random.* can't choose the rows
SELECT id FROM (SELECT id, random() AS r FROM {nearest}) WHERE r < 0.5 !! r < 0\.5.* can't choose the rows
WITH s AS (SELECT * FROM {nearest}) SELECT id FROM s WHERE random() < 0.5 !! random.* can't choose the rows
SELECT id FROM found WHERE random() < 0.5 !! random.* can't choose the rows
SELECT id FROM {nearest} WHERE id > (SELECT min(id) FROM events) !! id >.* can't choose the rows
SELECT id FROM events WHERE id IN (SELECT id FROM {nearest} WHERE random() < 0.5) !! random.* can't choose the rows
SELECT id FROM events WHERE id > (SELECT min(id) FROM {nearest} WHERE random() < 1) !! random.* can't choose the rows
SELECT id FROM (SELECT id FROM {nearest} UNION ALL SELECT id FROM {best}) WHERE random() < 0.5 !! random.* can't choose the rows
SELECT s.id FROM {nearest} s JOIN labels l ON s.lang = l.lang WHERE s.id < random() !! random.* can't choose the rows
