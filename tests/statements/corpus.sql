-- Every form of statement of docs/sql.md and docs/definitions.md, over t = (1, 10, a), (2, 20, b), (3, 30, c)
-- and s = (2, 5), (4, 7). After each: its answer, and the rows that t has then.
-- Where the first line says `own`, DuckDB has no such statement; it runs the others too.
-- 'start' is a checkpoint of t.

DELETE FROM t WHERE id = 1
-> 1 | 2 20 b, 3 30 c

DELETE FROM t AS a WHERE a.n > 15 AND a.s <> 'c'
-> 1 | 1 10 a, 3 30 c

DELETE FROM t USING s WHERE t.id = s.id
-> 1 | 1 10 a, 3 30 c

-- own
DELETE FROM t AS a USING (SELECT id FROM s) AS o WHERE a.id = o.id RETURNING a.id, n + 1 AS more
-> 2 21 | 1 10 a, 3 30 c

DELETE FROM t
-> 3 |

WITH w AS (SELECT max(id) AS id FROM t) DELETE FROM t WHERE id IN (SELECT id FROM w)
-> 1 | 1 10 a, 2 20 b

DELETE FROM t WHERE id NOT IN (SELECT id FROM s)
-> 2 | 2 20 b

TRUNCATE t
-> 3 |

-- own
TRUNCATE TABLE t
-> 3 |

UPDATE t SET n = n + 1, s = 'x' WHERE id >= 2
-> 2 | 1 10 a, 2 21 x, 3 31 x

UPDATE t SET n = (SELECT max(n) FROM s)
-> 3 | 1 7 a, 2 7 b, 3 7 c

-- own
UPDATE t AS a SET n = a.n * 2 WHERE a.id = 1 RETURNING id, n
-> 1 20 | 1 20 a, 2 20 b, 3 30 c

UPDATE t SET n = s.n FROM s WHERE t.id = s.id
-> 1 | 1 10 a, 2 5 b, 3 30 c

-- own
UPDATE t SET id = id + 10 WHERE id = 3
-> 1 | 1 10 a, 2 20 b, 13 30 c

WITH w AS (SELECT 2 AS id) UPDATE t SET s = NULL WHERE id IN (SELECT id FROM w)
-> 1 | 1 10 a, 2 20 NULL, 3 30 c

INSERT INTO t VALUES (4, 40, 'd'), (5, 50, 'e')
-> 2 | 1 10 a, 2 20 b, 3 30 c, 4 40 d, 5 50 e

-- own
INSERT INTO t VALUES (3, 0, 'z')
-> 1 | 1 10 a, 2 20 b, 3 0 z

-- own
INSERT INTO t (id, n) SELECT id, n FROM s
-> 2 | 1 10 a, 2 5 b, 3 30 c, 4 7 NULL

-- own
INSERT INTO t BY NAME SELECT n, id FROM s
-> 2 | 1 10 a, 2 5 b, 3 30 c, 4 7 NULL

-- own
WITH w AS (SELECT 9 AS id, 1 AS n, 'w' AS s) INSERT INTO t SELECT * FROM w RETURNING id, s
-> 9 w | 1 10 a, 2 20 b, 3 30 c, 9 1 w

INSERT INTO t (id, n) SELECT id, n FROM s ON CONFLICT DO NOTHING
-> 1 | 1 10 a, 2 20 b, 3 30 c, 4 7 NULL

INSERT INTO t (id, n) VALUES (1, 5), (7, 70) ON CONFLICT (id) DO UPDATE SET n = t.n + excluded.n
-> 2 | 1 15 a, 2 20 b, 3 30 c, 7 70 NULL

INSERT INTO t (id, n) VALUES (1, 5), (2, 50)
ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE excluded.n > t.n
-> 1 | 1 10 a, 2 50 b, 3 30 c

-- own
INSERT INTO t (id, n) VALUES (1, 5), (2, 12), (9, 9)
ON CONFLICT DO UPDATE SET n = excluded.n + t.n WHERE EXCLUDED . n = (SELECT max(o.n) FROM t AS o WHERE o.id = excluded.id - 1) + 2
-> 2 | 1 10 a, 2 32 b, 3 30 c, 9 9 NULL

-- own
INSERT t VALUES (4, 40, 'd')
-> 1 | 1 10 a, 2 20 b, 3 30 c, 4 40 d

-- own
INSERT INTO t (id, n) VALUES (1, 5), (4, 6), (1, 7) RETURNING n, s
-> 7 a, 6 NULL | 1 7 a, 2 20 b, 3 30 c, 4 6 NULL

-- own
INSERT INTO t VALUES (1, 5, 'p'), (1, 6, 'q') RETURNING *
-> 1 6 q | 1 6 q, 2 20 b, 3 30 c

-- own
REPLACE INTO t (id, n) VALUES (2, 0)
-> 1 | 1 10 a, 2 0 NULL, 3 30 c

-- own
INSERT OVERWRITE t (id, n) SELECT id, n FROM s
-> 2 | 2 5 NULL, 4 7 NULL

-- own
INSERT OVERWRITE INTO t (id, n) VALUES (3, 1), (3, 2) RETURNING n
-> 2 | 3 2 NULL

-- own
INSERT OVERWRITE t SELECT * FROM t WHERE false
-> 0 |

MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n
-> 1 0 1 0 | 1 10 a, 2 5 b, 3 30 c

MERGE INTO t AS a USING s AS o ON a.id = o.id
WHEN MATCHED AND o.n > 100 THEN UPDATE SET n = 0
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND o.n > 5 THEN INSERT (id, n) VALUES (o.id, o.n)
-> 2 1 0 1 | 1 10 a, 3 30 c, 4 7 NULL

MERGE INTO t USING (SELECT id, n, 'q' AS s FROM s) AS o ON t.id = o.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED BY TARGET THEN INSERT *
-> 2 1 1 0 | 1 10 a, 2 5 q, 3 30 c, 4 7 q

MERGE INTO t USING (VALUES (2, 9)) AS o (k, m) ON t.id = o.k
WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED BY SOURCE AND t.n < 30 THEN DELETE
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET n = -1
-> 2 0 1 1 | 2 20 b, 3 -1 c

-- own
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE
WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.n, 'i') RETURNING merge_action, id
-> DELETE 2, INSERT 4 | 1 10 a, 3 30 c, 4 7 i

-- own
WITH w AS (SELECT 3 AS id) MERGE INTO t USING w ON t.id = w.id WHEN MATCHED THEN DELETE
-> 1 0 0 1 | 1 10 a, 2 20 b

-- own
SELECT old.id, now.n FROM t VERSION AS OF 'start' AS old JOIN t AS now ON old.id = now.id WHERE old.n > 15
-> 2 20, 3 30 | 1 10 a, 2 20 b, 3 30 c

-- own
INSERT INTO t (id, n) SELECT id + 10, n FROM t VERSION AS OF 'start'
-> 3 | 1 10 a, 2 20 b, 3 30 c, 11 10 NULL, 12 20 NULL, 13 30 NULL

-- own
MERGE INTO t USING t VERSION AS OF 'start' AS old ON t.id = old.id + 1 WHEN MATCHED THEN UPDATE SET n = old.n
-> 2 0 2 0 | 1 10 a, 2 10 b, 3 20 c

-- own
SELECT s FROM t FOR SYSTEM_VERSION AS OF ('st' || 'art') WHERE id = 1
-> a | 1 10 a, 2 20 b, 3 30 c

-- own
SELECT [0.0, 3.0] <-> '[4, 0]' AS d, 1 <=> NULL AS e, 1 - ([1, 0] <=> [1, 0]) AS f, [1.0, 2.0] <#> [3.0, 4.0] AS g
-> 5.0 False 1.0 -11.0 | 1 10 a, 2 20 b, 3 30 c

-- own
WITH w AS (SELECT 1 AS id UNION ALL SELECT 3) SELECT t.s FROM t JOIN w ON t.id = w.id
-> a, c | 1 10 a, 2 20 b, 3 30 c

-- own
SELECT id, n INTO made FROM t WHERE id = 1
->  | 1 10 a, 2 20 b, 3 30 c

-- own
CALL memwal.flush('t')
-> 1 | 1 10 a, 2 20 b, 3 30 c

-- own
SHOW memwal.isolation
-> memwal.isolation snapshot | 1 10 a, 2 20 b, 3 30 c

-- own
SET memwal.isolation = 'serializable'
->  | 1 10 a, 2 20 b, 3 30 c

-- own
ALTER TABLE t ADD COLUMN m INT, ADD COLUMN IF NOT EXISTS n BIGINT
->  | 1 10 a NULL, 2 20 b NULL, 3 30 c NULL

-- own
ALTER TABLE t RENAME COLUMN s TO z
->  | 1 10 a, 2 20 b, 3 30 c

-- own
ALTER TABLE t DROP COLUMN s, DROP COLUMN IF EXISTS nope
->  | 1 10, 2 20, 3 30

-- own
ALTER TABLE t ALTER COLUMN s SET DEFAULT 'x', ALTER n DROP DEFAULT, ALTER n SET DATA TYPE BIGINT
->  | 1 10 a, 2 20 b, 3 30 c

INSERT INTO t VALUES (4, DEFAULT, 'd'), (5, 50, 'e')
-> 2 | 1 10 a, 2 20 b, 3 30 c, 4 NULL d, 5 50 e

UPDATE t SET n = DEFAULT WHERE id = 1
-> 1 | 1 NULL a, 2 20 b, 3 30 c

-- own
CREATE INDEX by_n ON t USING btree (n)
->  | 1 10 a, 2 20 b, 3 30 c

-- own
CREATE TABLE u (id BIGINT PRIMARY KEY, x FLOAT[2] NOT NULL) PARTITIONED BY (bucket(id, 2)) LOCATION '{folder}/u'
->  | 1 10 a, 2 20 b, 3 30 c

-- own
DROP INDEX IF EXISTS nope ON t
->  | 1 10 a, 2 20 b, 3 30 c
