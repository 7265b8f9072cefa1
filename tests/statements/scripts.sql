-- Scripts: each runs in a session and a folder of its own, which is the catalog `lake` and, as {}, a place for tables.
-- A line is a statement, and goes on where the next one is indented. Below it `=> rows` is its answer, and
-- `!! words` a regular expression for its error.

-- a table of a query has its rows or is not there
CREATE TABLE t (PRIMARY KEY (n)) PARTITIONED BY (bucket(n, 2)) LOCATION '{}/t' AS
    SELECT value / 2 AS n FROM generate_series(1, 4)
!! the same key|more than once|have 1 of the keys
SELECT * FROM t
!! not found
CREATE TABLE t (PRIMARY KEY (n)) PARTITIONED BY (bucket(n, 2)) LOCATION '{}/t' AS
    SELECT value AS n, arrow_cast('x', 'Utf8View') AS s FROM generate_series(1, 9) WHERE value <= 4
=> 4
SELECT sum(n), max(s), max(arrow_typeof(s)) FROM t
=> 10 x Utf8
CREATE TABLE IF NOT EXISTS t USING memwal AS SELECT 1 AS n
=>

-- columns of a query may be null, but for the key
CREATE TABLE t (PRIMARY KEY (id)) LOCATION '{}/t' AS
    SELECT 1 AS id, 'x' AS s, count(*) AS c, [1] AS l FROM (VALUES (1), (2))
=> 1
INSERT INTO t (id) VALUES (2)
=> 1
SELECT s, c, l FROM t WHERE id = 2
=> NULL NULL NULL
INSERT INTO t (s) VALUES ('x')
!! lack the primary key columns

-- given columns name and cast those of the query
CREATE TABLE t (id INT PRIMARY KEY, x TEXT) LOCATION '{}/t' AS SELECT 1, 'a' UNION ALL SELECT 2, NULL
=> 2
SELECT arrow_typeof(id), x FROM t ORDER BY id
=> Int32 a, Int32 NULL
CREATE TABLE u (id INT PRIMARY KEY, x TEXT) LOCATION '{}/u' AS SELECT 1, 2, 3
!! 3 columns for 2

-- an external table opens the table of its description, or makes it
CREATE EXTERNAL TABLE t (id BIGINT, n INT, PRIMARY KEY (id)) STORED AS MEMWAL LOCATION '{}/t' OPTIONS (regions 'bucket(id, 2)')
INSERT INTO t VALUES (1, 2)
CREATE EXTERNAL TABLE u (id BIGINT, n INT, PRIMARY KEY (id)) STORED AS MEMWAL LOCATION '{}/t' OPTIONS (regions 'bucket(id, 2)')
CREATE EXTERNAL TABLE v STORED AS MEMWAL LOCATION '{}/t'
SELECT t.n + u.n + v.n FROM t JOIN u USING (id) JOIN v USING (id)
=> 6
CREATE EXTERNAL TABLE w (id BIGINT, n BIGINT, PRIMARY KEY (id)) STORED AS MEMWAL LOCATION '{}/t' OPTIONS (regions 'bucket(id, 2)')
!! exists, and differs
CREATE EXTERNAL TABLE w (id BIGINT, n INT, PRIMARY KEY (id, n)) STORED AS MEMWAL LOCATION '{}/t' OPTIONS (regions 'bucket(id, 2)')
!! exists, and differs
CREATE EXTERNAL TABLE w (id BIGINT, n INT, PRIMARY KEY (id)) STORED AS MEMWAL LOCATION '{}/t' OPTIONS (regions 'bucket(id, 3)')
!! exists, and differs
CREATE TABLE w (id BIGINT PRIMARY KEY) LOCATION '{}/t'
!! table already: IF NOT

-- tables in memory, views and files of others stay DataFusion's
CREATE TABLE x (a INT)
CREATE TABLE IF NOT EXISTS x (a INT) AS VALUES (1)
CREATE OR REPLACE TABLE x AS SELECT 1 AS a
CREATE VIEW v AS SELECT a + 1 AS b FROM x
SELECT a, b FROM x, v
=> 1 2
DROP VIEW v
DROP TABLE x
SELECT * FROM x
!! not found
COPY (SELECT 1 AS a) TO '{}/x.csv'
=> 1
CREATE EXTERNAL TABLE x STORED AS CSV LOCATION '{}/x.csv' OPTIONS (has_header true)
SELECT * FROM x
=> 1
DROP TABLE x
CREATE EXTERNAL TABLE x OPTIONS (has_header true) STORED AS CSV LOCATION '{}/x.csv'
DROP TABLE x
CREATE EXTERNAL TABLE x (a BIGINT,) STORED AS CSV OPTIONS (has_header true,) LOCATION '{}/x.csv'
SELECT * FROM x
=> 1
CREATE TABLE "My" AS SELECT 1 AS a
ALTER TABLE IF EXISTS "My" ADD COLUMN b INT
!! not a MemWAL table

-- a session lets go of a table, and its files stay
CREATE TABLE t (id BIGINT PRIMARY KEY) LOCATION '{}/t'
INSERT INTO t VALUES (1)
DROP TABLE t
DROP TABLE IF EXISTS t
DROP TABLE t
!! doesn't exist
CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION '{}/t'
SELECT * FROM u
=> 1

-- columns are changed where they stand
CREATE TABLE t (id BIGINT PRIMARY KEY, a INT NOT NULL) LOCATION '{}/t'
INSERT INTO t VALUES (1, 2)
ALTER TABLE t ADD COLUMN b TEXT, ADD COLUMN IF NOT EXISTS a INT
ALTER TABLE t ADD COLUMNS (c INT, d DOUBLE[])
ALTER TABLE public.t RENAME COLUMN b TO "B b"
ALTER TABLE t ALTER COLUMN a DROP NOT NULL
ALTER TABLE t DROP COLUMN c, DROP COLUMN IF EXISTS nothing
ALTER TABLE IF EXISTS nothing DROP COLUMN c
=>
INSERT INTO t VALUES (2, NULL, 'x', [1.5])
SELECT id, a, "B b", d FROM t ORDER BY id
=> 1 2 NULL NULL, 2 NULL x [1.5]
SELECT count(*) FROM t$regions
=> 1

-- new rows have the defaults of columns that they lack
CREATE TABLE t (id BIGINT PRIMARY KEY, n INT DEFAULT -5 NOT NULL, s TEXT DEFAULT 'it''s', d DATE DEFAULT DATE '2026-01-31', p DECIMAL(5, 2) DEFAULT 1.5, b BOOLEAN DEFAULT TRUE, m INT) LOCATION '{}/t'
INSERT INTO t (id) VALUES (1)
INSERT INTO t VALUES (2, DEFAULT, DEFAULT, NULL, default, DEFAULT, DEFAULT), (3, 4, DEFAULT, '2026-02-01', 2, false, 1)
REPLACE INTO t (id, n) VALUES (3, 5)
INSERT INTO t (m, id) SELECT 7, 4 RETURNING n, s, m
=> -5 it's 7
INSERT INTO t (id, m) VALUES (1, 8), (5, 9) ON CONFLICT DO UPDATE SET m = excluded.m, s = DEFAULT
MERGE INTO t USING (VALUES (2), (6)) AS s(id) ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET d = DEFAULT WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, DEFAULT)
SELECT id, n, s, d, p, b, m FROM t ORDER BY id
=> 1 -5 it's 2026-01-31 1.50 True 8, 2 -5 it's 2026-01-31 1.50 True NULL, 3 5 it's 2026-01-31 1.50 True NULL, 4 -5 it's 2026-01-31 1.50 True 7, 5 -5 it's 2026-01-31 1.50 True 9, 6 -5 it's 2026-01-31 1.50 True NULL
ALTER TABLE t ALTER COLUMN n DROP DEFAULT, ALTER m SET DEFAULT 3, RENAME COLUMN s TO z
INSERT INTO t (id) VALUES (7)
!! 'n' is not nullable
UPDATE t SET m = DEFAULT, z = DEFAULT WHERE id < 3
INSERT INTO t (id, n) VALUES (7, 0)
SELECT id, n, z, m FROM t WHERE id NOT IN (3, 4, 5, 6) ORDER BY id
=> 1 -5 it's 3, 2 -5 it's 3, 7 0 it's 3
CREATE TABLE IF NOT EXISTS u (id BIGINT PRIMARY KEY, n INT NOT NULL, z TEXT, d DATE, p DECIMAL(5, 2), b BOOLEAN, m INT) LOCATION '{}/t'
CREATE TABLE IF NOT EXISTS v (id BIGINT PRIMARY KEY, n INT NOT NULL, z TEXT, d DATE, p DECIMAL(5, 2), b BOOLEAN, m INT DEFAULT 4) LOCATION '{}/t'
!! exists, and differs: .* m int32 default 3

-- a column named default is one
CREATE TABLE t (id BIGINT PRIMARY KEY, n INT DEFAULT 5, "default" INT) LOCATION '{}/t'
INSERT INTO t VALUES (1, 2, 3)
UPDATE t SET n = DEFAULT
SELECT n FROM t
=> 3

-- types become wider
CREATE TABLE t (id BIGINT PRIMARY KEY, n INT DEFAULT 1, f FLOAT, p DECIMAL(5, 2)) LOCATION '{}/t'
INSERT INTO t VALUES (1, 2, 0.5, 1.25)
CALL memwal.flush('t')
ALTER TABLE t ALTER COLUMN n TYPE BIGINT, ALTER COLUMN f SET DATA TYPE DOUBLE, ALTER p TYPE DECIMAL(12, 4), ALTER n SET DEFAULT 5000000000
INSERT INTO t VALUES (2, DEFAULT, 0.1, 12345678.0001)
SELECT id, n, f, p FROM t WHERE n < 5000000001 ORDER BY id
=> 1 2 0.5 1.2500, 2 5000000000 0.1 12345678.0001

-- nothing is changed where one of several changes can not be made
CREATE TABLE t (id BIGINT PRIMARY KEY) LOCATION '{}/t'
INSERT INTO t VALUES (1)
ALTER TABLE t ADD COLUMN c INT, RENAME c TO a, DROP COLUMN IF EXISTS c
ALTER TABLE t ADD COLUMN b INT, DROP COLUMN b, ADD COLUMN b INT, DROP COLUMN nothing
!! no such column
ALTER TABLE t ADD COLUMN b INT, DROP COLUMN id
!! primary key
ALTER TABLE t ADD COLUMN b INT, DROP CONSTRAINT a
!! CONSTRAINT
ALTER TABLE t ADD COLUMN b INT, RENAME COLUMN nothing TO x
!! no such column
ALTER TABLE t ADD COLUMN b INT, RENAME COLUMN b TO a
!! a
ALTER TABLE t ADD COLUMN b INT, ADD COLUMN a INT
!! already
ALTER TABLE t ADD COLUMN b INT, ADD COLUMN x INT NOT NULL
!! make them nullable
ALTER TABLE t ADD COLUMN b INT, ADD COLUMN x NOPE
!! NOPE
ALTER TABLE t ADD COLUMN b INT, ALTER COLUMN nothing DROP NOT NULL
!! no such column
ALTER TABLE t ADD COLUMN b INT, ALTER COLUMN a SET NOT NULL
!! nulls
ALTER TABLE t ADD COLUMN b INT, DROP a, DROP a
!! no such column
ALTER TABLE t ADD COLUMN b INT, SET TBLPROPERTIES ('a' = 'b')
!! SET
SELECT * FROM t
=> 1 NULL
UPDATE t SET a = 5
=> 1

-- indexes are made and dropped
CREATE TABLE t (id BIGINT PRIMARY KEY, body TEXT, v FLOAT[2]) LOCATION '{}/t'
INSERT INTO t VALUES (1, 'running dogs', [1.0, 0.0]), (2, 'a cat', [0.0, 1.0])
CALL memwal.flush('t')
=> 0
CALL memwal.merge('t')
=> 1
CREATE INDEX words ON t USING fts (body) WITH (stem = true, language = 'English')
CREATE INDEX IF NOT EXISTS words ON t USING fts (body)
CREATE OR REPLACE INDEX words ON t USING fts (body) WITH (stem = true)
CREATE INDEX ON t USING ivf_flat (v) WITH (num_partitions = 1, metric = 'cosine')
CREATE INDEX bodies ON t (body)
SELECT name FROM t$indexes WHERE name <> 'id_idx' ORDER BY name
=> bodies, v_idx, words
SELECT id FROM full_text_search('t', 'body', 'run', 3)
=> 1
DROP INDEX words ON t
DROP INDEX IF EXISTS words ON t
DROP INDEX IF EXISTS bodies ON t
SELECT name FROM t$indexes WHERE name <> 'id_idx'
=> v_idx

-- tables of a catalog are made, changed and dropped in its folder
CREATE TABLE lake.public.made (id BIGINT PRIMARY KEY, a TEXT) PARTITIONED BY (bucket(id, 2))
INSERT INTO lake.public.made VALUES (1, 'x')
CREATE TABLE IF NOT EXISTS lake.public.copy (PRIMARY KEY (id)) AS SELECT * FROM lake.public.made
=> 1
CREATE TABLE IF NOT EXISTS lake.public.copy (PRIMARY KEY (id)) AS SELECT * FROM lake.public.made
=>
CREATE EXTERNAL TABLE same STORED AS MEMWAL LOCATION '{}/made.lance'
SELECT * FROM same
=> 1 x
DROP TABLE same
ALTER TABLE lake.public.made ADD COLUMN b INT, DROP COLUMN a
CREATE INDEX ON lake.public.made (b)
SELECT * FROM lake.public.made
=> 1 NULL
SELECT count(*) FROM lake.public.made$regions
=> 1
CALL memwal.checkpoint('lake.public.made', 'then')
DELETE FROM lake.public.made WHERE id IN (SELECT id FROM lake.public.copy)
=> 1
SELECT now.id FROM lake.public.made AS now JOIN lake.public.made AS same USING (id)
=>
SELECT id FROM lake.public.made VERSION AS OF 'then'
=> 1
DROP TABLE lake.public.made
DROP TABLE IF EXISTS lake.public.made
CREATE EXTERNAL TABLE same STORED AS MEMWAL LOCATION '{}/made.lance'
!! not a Lance table
SELECT * FROM lake.public.copy
=> 1 x

-- prepared statements are DataFusion's, and queries
CREATE TABLE t (id BIGINT PRIMARY KEY, n INT) LOCATION '{}/t' AS VALUES (3, 30)
PREPARE near(BIGINT) AS SELECT n FROM t WHERE id = $1
EXECUTE near(3)
=> 30
DEALLOCATE near
PREPARE change AS DELETE FROM t
!! only a query
PREPARE change AS INSERT INTO t VALUES (9, 9)
!! only a query
PREPARE change AS UPDATE t SET n = 0
!! only a query
SELECT * FROM t
=> 3 30

-- the level of isolation is shown and set back
RESET memwal.isolation
SHOW memwal.isolation
=> memwal.isolation snapshot
SET memwal.isolation TO 'Serializable'
SHOW memwal.isolation
=> memwal.isolation serializable
RESET memwal.isolation;
SHOW memwal.isolation
=> memwal.isolation snapshot
SET datafusion.execution.batch_size = 1024
SHOW datafusion.execution.batch_size
=> datafusion.execution.batch_size 1024
RESET datafusion.execution.batch_size

-- rows go to files and come back
CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, "Name" TEXT) LOCATION '{}/t' AS VALUES (7, 5, 'old'), (8, 6, NULL)
COPY t TO '{}/rows.csv'
=> 2
COPY datafusion.public.t TO '{}/rows.parquet'
=> 2
COPY (SELECT * FROM t) TO '{}/rows.json'
=> 2
COPY t TO '{}/rows.arrow'
=> 2
CREATE EXTERNAL TABLE csv (id BIGINT, n BIGINT, "Name" TEXT) STORED AS csv LOCATION '{}/rows.csv'
CREATE EXTERNAL TABLE parquet STORED AS parquet LOCATION '{}/rows.parquet'
CREATE EXTERNAL TABLE json STORED AS json LOCATION '{}/rows.json'
CREATE EXTERNAL TABLE arrow STORED AS arrow LOCATION '{}/rows.arrow'
INSERT OVERWRITE t BY NAME SELECT * FROM csv RETURNING *
=> 7 5 old, 8 6 NULL
INSERT OVERWRITE t BY NAME SELECT * FROM parquet RETURNING *
=> 7 5 old, 8 6 NULL
INSERT OVERWRITE t BY NAME SELECT * FROM json RETURNING *
=> 7 5 old, 8 6 NULL
INSERT OVERWRITE t BY NAME SELECT * FROM arrow RETURNING *
=> 7 5 old, 8 6 NULL
SET datafusion.sql_parser.enable_ident_normalization = 'false'
COPY t TO '{}/again.csv'
=> 2

-- tables of no catalog or schema are none
ALTER TABLE IF EXISTS nope.public.x ADD COLUMN a INT
=>
ALTER TABLE IF EXISTS nope.x ADD COLUMN a INT
=>
DROP TABLE IF EXISTS nope.public.x
=>
DROP TABLE IF EXISTS nope.x
=>

-- words of AS OF are names elsewhere
CREATE TABLE v AS SELECT 1 AS version, 2 AS of
SELECT version AS of, of AS version, 'FROM t VERSION AS OF 3' FROM v
=> 1 2 FROM t VERSION AS OF 3

-- columns may be called like the rows given, and like the kind of change
CREATE TABLE t (a BIGINT PRIMARY KEY, "memwal given a" BIGINT, excluded BIGINT) LOCATION '{}/t' AS VALUES (1, 2, 3)
INSERT INTO t VALUES (1, 2, 3) ON CONFLICT DO UPDATE
    SET excluded = excluded + excluded.excluded, "memwal given a" = excluded.a
SELECT * FROM t
=> 1 1 6
CREATE TABLE w (id BIGINT PRIMARY KEY, merge_action TEXT) LOCATION '{}/w' AS VALUES (1, 'a'), (2, 'b')
MERGE INTO w USING (SELECT 1 AS id) AS s ON w.id = s.id WHEN MATCHED THEN DELETE RETURNING merge_action
!! t\.merge_action.*: 'merge_action'
MERGE INTO w USING (SELECT 1 AS id) AS s ON w.id = s.id WHEN MATCHED THEN DELETE RETURNING upper(merge_action)
!! t\.merge_action.*: 'merge_action'
MERGE INTO w USING (SELECT 1 AS id) AS s ON w.id = s.id WHEN MATCHED THEN UPDATE SET merge_action = 'c'
    RETURNING *, w.merge_action AS x
=> 1 c c
MERGE INTO w USING (SELECT 1 AS id) AS s ON w.id = s.id WHEN MATCHED THEN DELETE RETURNING w.id AS merge_action
=> 1

-- a source may have views of texts, as columns of DataFusion's TEXT are
CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT, s TEXT) LOCATION '{}/t' AS VALUES (1, 1, NULL), (2, 2, NULL)
CREATE TABLE v (i BIGINT, k TEXT, w TEXT[]) AS VALUES (1, 'a', ['x', NULL])
MERGE INTO t USING v AS s ON t.id = s.i WHEN MATCHED AND s.k > '0' THEN UPDATE SET s = s.k || s.w[1]
    WHEN NOT MATCHED THEN INSERT VALUES (i, 0, k) RETURNING id, t.s
=> 1 ax
MERGE INTO t USING v AS s ON t.n = s.i WHEN MATCHED AND s.k > '0' THEN UPDATE SET s = s.k || s.w[1]
    WHEN NOT MATCHED THEN INSERT VALUES (i, 0, k) RETURNING id, t.s
=> 1 ax
MERGE INTO t USING v AS s ON t.id = s.i + 1 WHEN MATCHED THEN UPDATE SET s = s.k || s.w[1] RETURNING id, t.s
=> 2 ax
INSERT INTO t SELECT i + 1, 4, w[1] FROM v ON CONFLICT DO UPDATE SET s = excluded.s RETURNING id, s
=> 2 x

-- What says the same as NOT IN, which is refused over NULLs
CREATE TABLE t AS SELECT * FROM (VALUES (1, 1), (3, NULL)) AS v (a, n)
SELECT a FROM t WHERE 5 <> ALL (SELECT n FROM t)
=>
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM t z WHERE z.n = 5 OR z.n IS NULL)
=>
SELECT a FROM t WHERE n = 1 OR a <> ALL (SELECT n FROM t)
=> 1
SELECT a FROM t WHERE n = 1 OR NOT EXISTS (SELECT 1 FROM t z WHERE z.n = t.a OR z.n IS NULL)
=> 1
SELECT a FROM t WHERE 5 <> ALL (SELECT n FROM t z WHERE z.a = t.a)
=> 1
SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM t z WHERE z.a = t.a AND (z.n = 5 OR z.n IS NULL))
=> 1

-- DataFusion 55 takes a condition over a right join for one on the other column: the same
CREATE TABLE large AS SELECT value AS a FROM generate_series(0, 299)
CREATE TABLE small AS SELECT * FROM (VALUES (1), (2), (700)) AS v (a)
SELECT y.a FROM large x RIGHT JOIN small y ON x.a = y.a WHERE x.a IS NULL AND y.a > 1
=>
SELECT x.a FROM small x LEFT JOIN large y ON x.a = y.a WHERE y.a IS NULL AND x.a > 1
=> 700
SET datafusion.optimizer.join_reordering = false
SELECT y.a FROM large x RIGHT JOIN small y ON x.a = y.a WHERE x.a IS NULL AND y.a > 1
=> 700

-- external tables have odd names, and options say how they are read
CREATE TABLE t (id BIGINT PRIMARY KEY, val TEXT) PARTITIONED BY (bucket(id, 2)) LOCATION '{}/t'
    AS VALUES (1, 'a'), (2, 'b')
CALL memwal.flush('t')
INSERT INTO t VALUES (3, 'c')
CREATE EXTERNAL TABLE "a""b" STORED AS MEMWAL LOCATION '{}/t'
INSERT INTO "a""b" VALUES (4, 'd')
=> 1
SELECT id FROM "a""b" ORDER BY id
=> 1, 2, 3, 4
SELECT id FROM full_text_search('"a""b"', 'val', 'c', 3)
=> 3
SELECT count(*) FROM "a""b$regions"
=> 2
DELETE FROM "a""b" WHERE id > 3
=> 1
CALL memwal.checkpoint('t', 'Now')
CREATE EXTERNAL TABLE datafusion.public.flushed STORED AS MEMWAL LOCATION '{}/t' OPTIONS ('consistency' 'manifest')
CREATE EXTERNAL TABLE then STORED AS MEMWAL LOCATION '{}/t' OPTIONS ('memwal.checkpoint' 'Now', missing 'null')
INSERT INTO t VALUES (9, 'z')
SELECT id FROM flushed ORDER BY id
=> 1, 2
SELECT id FROM then ORDER BY id
=> 1, 2, 3

-- values of every statement are read as the types of their columns
CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT) LOCATION '{}/t'
INSERT INTO t VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL) RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
INSERT INTO t (VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL)) RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
REPLACE INTO t VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL) RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
INSERT OVERWRITE t VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL) RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
WITH w AS (SELECT 2.0 AS x) INSERT INTO t VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL)
    RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
INSERT INTO t VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL)
    ON CONFLICT DO UPDATE SET n = excluded.n RETURNING *
=> 1 9007199254740993, 2 2, 3 9007199254740995, 4 NULL
ALTER TABLE t ADD COLUMN s TEXT
DELETE FROM t
INSERT INTO t (id, n) VALUES (1, 9007199254740993), ('2', 2.0), (3, '9007199254740995'), (4, NULL)
    ON CONFLICT DO NOTHING RETURNING *
=> 1 9007199254740993 NULL, 2 2 NULL, 3 9007199254740995 NULL, 4 NULL NULL
