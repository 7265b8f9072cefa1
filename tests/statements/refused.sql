-- Statements that are refused, and after each what its error says (a regular expression).
-- The tables of the session: t (id, n, v, c) with a checkpoint 'then' and w (tenant, id, n, "Name") are of this
-- package; s (id, n), due (id, n) and m (column1, column2, column3) are DataFusion's; the catalog lake has one
-- table of this package, a plain Lance table and a folder without a table. $q is not a vector.

-- UPDATE, DELETE
UPDATE w SET n = 1, n = 2 !! set twice, at line 1, column 21
UPDATE w SET x = 1 !! no such column
UPDATE w SET (n, id) = (1, 2) !! column = value, at line 1, column 14
UPDATE w SET z.n = 1 !! 'z' is not the table
UPDATE w SET n 1 !! Expected: =, found: 1
UPDATE w SET n = !! an expression
UPDATE w\nSET !! identifier, .*, at line 2, column 4: the end
UPDATE w WHERE n = 1 !! Expected: SET
DELETE FROM w RETURNING !! an expression
UPDATE w SET n = 2 RETURNING DISTINCT n !! found: n|DISTINCT
DELETE FROM w WHERE n = 1 LIMIT 1 !! can't have this clause
DELETE FROM w WHERE nope = 1 !! nope
WITH w AS (SELECT 1 AS id) DELETE FROM w WHERE id = 1 !! WITH has a query of this name
DELETE FROM w USING WHERE n = 1 !! found: WHERE|identifier|n
DELETE FROM w WHERE id < 0 UNION SELECT tenant, id FROM w !! UNION
DELETE FROM w WHERE n = 1 GROUP BY tenant, id !! GROUP
DELETE FROM w WHERE n = 1 OFFSET 1 !! OFFSET
UPDATE w SET n = 2 WHERE id < 0 EXCEPT SELECT * FROM w !! EXCEPT
UPDATE w SET n = 2 WHERE n = 1 QUALIFY true !! QUALIFY
DELETE FROM w USING w AS u UNION SELECT tenant, id FROM w !! column 28: 'UNION'
DELETE FROM w USING w AS u GROUP BY tenant, id !! in
DELETE FROM w RETURNING unnest([1, 2]) !! one row for each
DELETE FROM w AS z USING w AS u WHERE u.id = z.id RETURNING u.* !! columns of 'z'
DELETE FROM nowhere !! not found|nowhere
DELETE FROM w USING due AS w WHERE w.id = 1 !! duplicate qualified field name
DELETE FROM public.w USING due AS d, due W WHERE w.id = 1 !! duplicate qualified field name
UPDATE w AS a SET n = 9 FROM (SELECT * FROM due) a WHERE a.id = 1 !! duplicate qualified field name
TRUNCATE w, u !! the end of the statement
UPDATE w SET n = d.n FROM (VALUES (1), (2)) AS d(n) !! more than once
UPDATE w SET n = unnest(make_array()) !! to one value.* column 18: 'unnest'
UPDATE w SET n = 1 + "unnest"([n]) !! to one value
UPDATE w SET n = (SELECT 1) + (1 * UNNEST([1])) !! to one value
UPDATE w SET n = 1.5 !! 1.5
UPDATE w SET n = 'x' !! x

-- what DataFusion answers wrongly
DELETE FROM w WHERE 5 NOT IN (SELECT n FROM due) !! <> ALL
DELETE FROM w WHERE NOT 5 IN (SELECT n FROM due) !! <> ALL
DELETE FROM w WHERE id = 1 OR n NOT IN (SELECT n FROM due) !! <> ALL
UPDATE w SET n = 7 WHERE id = 1 OR n NOT IN (SELECT n FROM due) !! <> ALL
MERGE INTO w USING (SELECT * FROM w WHERE id = 1 OR n NOT IN (SELECT n FROM due)) AS s ON w.id = s.id WHEN MATCHED THEN DELETE !! <> ALL
DELETE FROM w WHERE id = 1 OR NOT (n IN (SELECT n FROM due)) !! <> ALL
DELETE FROM w WHERE NOT (id = 5 AND n IN (SELECT n FROM due)) !! <> ALL
DELETE FROM w WHERE n NOT IN (SELECT n FROM due WHERE due.id = w.id) !! <> ALL
DELETE FROM w WHERE n NOT IN (SELECT n FROM due AS t2 WHERE t2.id IN (SELECT w.id)) !! <> ALL
DELETE FROM w WHERE (id IN (SELECT n FROM due)) IS NULL !! <> ALL
DELETE FROM w WHERE (id IN (SELECT n FROM due)) IS NOT FALSE !! <> ALL
DELETE FROM w WHERE CASE WHEN id > 1 THEN n NOT IN (SELECT n FROM due) END !! <> ALL
DELETE FROM w WHERE id IN (SELECT id FROM due WHERE id = 1 OR n NOT IN (SELECT n FROM w)) !! <> ALL
DELETE FROM w WHERE n NOT IN (SELECT n FROM due AS "W" WHERE "W".id = w.id) !! <> ALL
DELETE FROM w WHERE n NOT IN (SELECT n FROM due AS x WHERE X.id = W.id) !! <> ALL

-- subqueries that DataFusion can't run
UPDATE t SET c = CASE WHEN n <= ALL (SELECT n FROM s) THEN 'a' ELSE 'b' END !! can't run this subquery.*as a join.*min\(u.x\)
UPDATE t SET c = CASE WHEN n IN (SELECT n FROM s) THEN 'a' END !! can't run this subquery.*count\(\*\)
UPDATE t SET c = CASE WHEN EXISTS (SELECT 1 FROM s WHERE s.id = t.id) THEN 'a' END !! can't run this subquery
UPDATE t SET n = CASE WHEN n = ANY (SELECT s.n FROM s WHERE s.id = t.id) THEN 1 END !! can't run this subquery
UPDATE t SET n = (SELECT n FROM s WHERE s.id = t.id) !! one value that names .* needs an aggregate, as in \(SELECT max
UPDATE t SET n = coalesce((SELECT n FROM s WHERE s.id = t.id), 0) !! needs an aggregate
UPDATE t SET n = (SELECT s.n FROM s WHERE s.id = t.id ORDER BY s.n LIMIT 1) !! can't run this subquery
UPDATE t SET n = (SELECT max(s.n) FROM s WHERE s.id > t.id) !! can't run this subquery
UPDATE t SET n = (SELECT n FROM s) !! several rows: give it an aggregate, such as max, or LIMIT 1
UPDATE t SET n = 1 RETURNING n IN (SELECT n FROM s) !! can't run this subquery
UPDATE t SET n = 1 RETURNING EXISTS (SELECT 1 FROM s WHERE s.id = t.id) !! can't run this subquery
DELETE FROM t WHERE n IN (SELECT s.n FROM s WHERE s.id = t.id LIMIT 1) !! can't run this subquery
DELETE FROM t WHERE n <= ALL (SELECT s.n FROM s WHERE s.id = t.id ORDER BY s.n LIMIT 1) !! can't run this subquery
DELETE FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.id = t.id UNION SELECT 1 FROM s WHERE s.n = t.id) !! can't run this subquery
DELETE FROM t WHERE id IN (SELECT id FROM s WHERE EXISTS (SELECT 1 FROM m WHERE column2 = t.id)) !! can't run this subquery
DELETE FROM t WHERE id IN (SELECT id FROM s WHERE n = (SELECT max(column3) FROM m WHERE column2 = t.id)) !! can't run this subquery
DELETE FROM t WHERE n = (SELECT n FROM s WHERE s.id = t.id) !! needs an aggregate
INSERT INTO t (id, n) SELECT id, CASE WHEN EXISTS (SELECT 1 FROM m) THEN 1 END FROM s !! can't run this subquery
INSERT INTO t (id, n) VALUES (1, (SELECT n FROM s)) !! several rows
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = CASE WHEN t.n <= ALL (SELECT n FROM s) THEN 1 END !! can't run
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = CASE WHEN t.n <= ALL (SELECT n FROM due) THEN 1 END !! can't run
MERGE INTO t USING s ON t.id IN (SELECT id FROM due) WHEN MATCHED THEN DELETE !! can't run this subquery
SELECT id, n IN (SELECT n FROM s) AS e FROM t !! can't run this subquery
SELECT id, EXISTS (SELECT 1 FROM s) AS e FROM t !! can't run this subquery
SELECT id FROM t ORDER BY EXISTS (SELECT 1 FROM s WHERE s.id = t.id) !! can't run this subquery
SELECT count(*) FROM t GROUP BY EXISTS (SELECT 1 FROM s WHERE s.id = t.id) !! can't run this subquery
SELECT count(*) FILTER (WHERE n IN (SELECT n FROM s)) FROM t !! can't run this subquery
SELECT rank() OVER (ORDER BY n IN (SELECT n FROM s)) FROM t !! can't run this subquery
SELECT t.id FROM t JOIN w ON EXISTS (SELECT 1 FROM s WHERE s.id = w.id) !! can't run this subquery
SELECT t.id FROM t LEFT JOIN w ON t.n = ANY (SELECT id FROM s) !! can't run this subquery
SELECT t.id FROM t LEFT JOIN w ON t.id = w.id AND w.n = (SELECT max(id) FROM s WHERE s.id = t.id) !! can't run this subquery
VALUES ((SELECT n FROM t WHERE id = 1)) !! can't run this subquery

-- DataFusion's words
SELECT name FROM w !! ^No field named name. Did you mean 'w."Name"'\?\nNames without double quotes are in lower case\n
UPDATE w SET n = Name !! Did you mean 'w."Name"'\?\nNames without double quotes are in lower case\n
MERGE INTO w USING (SELECT * FROM w) AS s ON w.id = s.id WHEN MATCHED THEN UPDATE SET n = s.Name !! Did you mean 's."Name"'\?\nNames without double quotes are in lower case$
SELECT id FROM t LIMIT (SELECT 1) !! ^LIMIT takes a number, or a parameter$
SELECT id FROM t WHERE unnest(v) = 1 !! ^unnest can't stand here: .* SELECT x FROM
SELECT id FROM t PIVOT (sum(n) FOR c IN ('x')) !! ^DataFusion does not run Pivot$
SELECT sum(c) FROM t !! ^Function 'sum' failed .* errors: Function 'sum' requires
SELECT grouping(id) FROM t !! ^Argument t.id to grouping function
SELECT regexp_like(c, '(') FROM t !! ^Invalid regex: regex parse error
SELECT sum(n), id FROM t !! ^Column in SELECT must be in GROUP BY or an aggregate function: column "t.id"

-- INSERT
INSERT INTO w VALUES ('a', 1) !! 2 columns, and 4
INSERT INTO w (id, nope) VALUES (1, 2) !! no such column.*, at line 1, column 20
INSERT INTO w (id, id) VALUES (1, 2) !! given twice, at line 1, column 20
INSERT INTO w (n) VALUES (1) !! lack the primary key columns \['id', 'tenant'\]
INSERT INTO w BY NAME SELECT 1 AS id, 'a' AS tenant, 2 AS nope !! columns \['nope'\]
INSERT INTO w (id, tenant, n) VALUES (1, 'a', 1.5) !! 1.5
INSERT INTO w (id, tenant, n) VALUES ('x', 'a', 1) !! 'x'
INSERT INTO w (id, tenant) VALUES (NULL, 'a') !! NULL in its key column 'id'
INSERT INTO w VALUES ('a', NULL, 1, 'a') !! NULL in its key column 'id'
INSERT INTO w !! a query here
INSERT INTO w ON CONFLICT DO NOTHING !! a query here
INSERT INTO w DEFAULT VALUES !! a query here
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT (n) DO NOTHING !! by the primary key
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT (id) DO NOTHING !! by the primary
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT DO !! Expected: UPDATE
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT DO NOTHING WHERE n = 1 !! the end of
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT DO UPDATE SET x = 1 !! no such column
INSERT INTO w VALUES ('a', 1, 1, 'x'), ('a', 1, 2, 'y') ON CONFLICT DO UPDATE SET n = 1 !! more than once
INSERT INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT DO UPDATE SET n = unnest([1]) !! one value
REPLACE INTO w VALUES ('a', 1, 1, 'x') ON CONFLICT DO NOTHING !! leaves no rows
INSERT OR IGNORE INTO w VALUES ('a', 1, 1, 'x') !! ON CONFLICT DO NOTHING
INSERT IGNORE INTO w VALUES ('a', 1, 2, 'x') !! ON CONFLICT DO NOTHING.*'IGNORE'
INSERT LOW_PRIORITY INTO w VALUES ('a', 1, 2, 'x') !! column 8: 'LOW_PRIORITY'
REPLACE DELAYED INTO w VALUES ('a', 1, 2, 'x') !! column 9: 'DELAYED'
INSERT INTO w VALUES ('a', 1, 2, 'x') RETURNING DISTINCT n !! found: n|DISTINCT
INSERT INTO w VALUES ('a', 1, 1, 'x') RETURNING nope !! nope
INSERT INTO w VALUES ('a', 1, 1, 'x') RETURNING new.* !! columns of 'w'.*column 49
INSERT OVERWRITE w VALUES ('a', 1, 1.5, 'x') !! 1.5
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = excluded.nope !! column 76:
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = excluded.c !! column 76:
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = (SELECT max(excluded.w) FROM t) !! column 88:
INSERT INTO t (id, n) VALUES (1, 2) ON CONFLICT DO UPDATE SET n = excluded !! column 67:
INSERT INTO t VALUES (1, 2, NULL, 'x') ON CONFLICT DO UPDATE SET n = excluded.c + true !! excluded.c|Utf8
INSERT INTO t (id, n) SELECT * FROM (VALUES (1, (SELECT 8))) !! can't run this subquery
INSERT INTO t (id, n) VALUES (1, 2) UNION ALL VALUES (2, (SELECT 8)) !! can't run this subquery
INSERT INTO t (id, n) VALUES (1, CAST(EXISTS (SELECT 1 FROM t) AS INT)) !! can't run this subquery
INSERT INTO t (id, n) VALUES (1, CAST(5 IN (SELECT id FROM t) AS INT)) !! = ANY
INSERT INTO t (id, n) VALUES (1, 1), (2, 2.5), (3, 'x') !! column 'n' .* 2\.5
INSERT INTO t (id, n) VALUES (1, 1), (2, (y)), (3, 'x') !! No field named y
INSERT INTO t (id, n) VALUES (1, 1), (2) !! 1 values in row 1 but expected 2
INSERT INTO t (id, n) VALUES (1, 1), () !! an expression.* column 39
INSERT INTO t (id, n) VALUES (1, 1), !! found: EOF.* column 37
INSERT INTO t (id, n) VALUES (1, 1) (2, 'x') !! the end of the statement
INSERT INTO t (id, n) VALUES (1, 'x', 2), (1, 2, 3) !! 'x'|3 columns
UPDATE t SET v = [1e300, 1] !! 'v'

-- MERGE
MERGE INTO w USING (SELECT * FROM m UNION ALL SELECT * FROM m) AS s ON w.id = s.column2 WHEN MATCHED THEN UPDATE SET n = 0 !! more than once
MERGE INTO w USING (SELECT * FROM m UNION ALL SELECT * FROM m) AS s ON w.id = s.column2 WHEN MATCHED AND s.column3 > 0 THEN DELETE !! more than once
MERGE INTO w USING m ON w.n = m.column3 WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', 2) !! several rows would get
MERGE INTO w USING m ON w.n = m.column3 WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', m.column2) !! other rows have 1 .*\('a', 1\)
MERGE INTO w USING m ON w.id = m.column2 AND w.tenant = m.column1 AND false WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES (m.column1, m.column2) !! other rows have 1
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN UPDATE SET n = 1.5 !! 1.5
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN UPDATE SET n = unnest([1]) !! one value
MERGE INTO w USING m ON w.id = m.column2 WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', unnest([1])) !! one value
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN UPDATE SET * !! lacks the columns \['tenant', 'id', 'n', 'Name'\].* name those .*column 71
MERGE INTO w USING (SELECT column1 AS tenant, column2 AS id, 1 AS n FROM m) AS s ON w.id = s.id WHEN NOT MATCHED THEN INSERT * !! lacks the columns \['Name'\].* column 126
MERGE INTO w USING (SELECT 'a' AS tenant, 1 AS id, 2 AS n) AS s ON w.id = s.id AND w.tenant = s.tenant WHEN NOT MATCHED THEN INSERT * WHEN MATCHED AND n > 5 THEN UPDATE SET * !! 'Name'
MERGE INTO w USING m WHERE column2 > 1 ON w.id = m.column2 WHEN MATCHED THEN DELETE !! in parentheses.* at line 1, column 22
MERGE INTO w USING m AS x UNION ALL SELECT * FROM m ON w.id = m.column2 WHEN MATCHED THEN DELETE !! in parentheses.* at line 1, column 27
MERGE INTO w USING m AS x, m ON w.id = m.column2 WHEN MATCHED THEN DELETE !! in parentheses.* at line 1, column 26
MERGE INTO w USING m JOIN m AS x USING (column2) ON w.id = m.column2 WHEN MATCHED THEN DELETE !! in parentheses.* at line 1, column 22
MERGE INTO w USING m LIMIT 1 ON w.id = m.column2 WHEN MATCHED THEN DELETE !! in parentheses
MERGE INTO w USING m ON w.id = m.nope WHEN MATCHED THEN DELETE !! nope
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED AND nope THEN DELETE !! nope
MERGE INTO w USING m ON w.id = m.column2 WHEN NOT MATCHED THEN INSERT (tenant) VALUES ('a') !! NULL
MERGE INTO w USING m ON w.id = m.column2 WHEN NOT MATCHED THEN INSERT (n, n) VALUES (1, 2) !! given twice, at line 1, column 75
MERGE INTO w USING m ON w.id = m.column2 WHEN NOT MATCHED THEN INSERT (n) VALUES (1, 2) !! 2 values are given for 1 columns
MERGE INTO w USING m ON w.id = m.column2 WHEN NOT MATCHED THEN UPDATE SET n = 1 !! INSERT or DO
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN INSERT * !! UPDATE, DELETE or DO
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN DELETE WHEN MATCHED THEN DO NOTHING !! earlier WHEN takes all
MERGE INTO w USING m ON w.id = m.column2 !! WHEN .* is missing
MERGE INTO w USING m WHEN MATCHED THEN DELETE !! expected ON here
MERGE INTO w USING m ON WHEN MATCHED THEN DELETE !! an expression|WHEN
MERGE INTO w USING w ON true WHEN MATCHED THEN DELETE !! name that differs
MERGE INTO w USING m ON w.id = m.column2 WHEN MATCHED THEN DELETE RETURNING nope !! nope

-- CREATE, ALTER, DROP
CREATE TABLE u (id INT) LOCATION 'other' !! PRIMARY KEY \(columns\) .*column 16: '\('
CREATE TABLE u (id BIGINT PRIMARY KEY, s TEXT) !! LOCATION.*catalog
CREATE TABLE IF NOT EXISTS u (id BIGINT, PRIMARY KEY (id)) !! LOCATION.*catalog
CREATE TABLE u LOCATION 'other' AS SELECT 1 AS id !! PRIMARY KEY \(columns\)
CREATE TABLE u (id INT PRIMARY KEY) USING memwal !! LOCATION 'folder' is missing
CREATE TABLE u (id INT PRIMARY KEY, PRIMARY KEY (id)) LOCATION 'other' !! only one primary
CREATE TABLE u (id INT PRIMARY KEY, a INT DEFAULT now()) LOCATION 'other' !! a default is a constant.*column 51: 'now'
CREATE TABLE u (id INT PRIMARY KEY, a INT DEFAULT 1 + 1) LOCATION 'other' !! column 53: '\+'
CREATE TABLE u (id INT PRIMARY KEY, a INT DEFAULT 'x') LOCATION 'other' !! 'a': 'x' is not an int32
CREATE TABLE u (id INT PRIMARY KEY, a INT DEFAULT 1.5) LOCATION 'other' !! 'a' can't be cast from double to int32
CREATE TABLE u (id INT PRIMARY KEY, a INT[] DEFAULT [1]) LOCATION 'other' !! can't be a default
CREATE TABLE u (id INT PRIMARY KEY DEFAULT 1) LOCATION 'other' !! every row must come with its key
CREATE TABLE u (id INT PRIMARY KEY, a INT CHECK (a > 0)) LOCATION 'other' !! column 43: 'CHECK'
CREATE TABLE u (id INT PRIMARY KEY, a NOTHING) LOCATION 'other' !! column 37: 'a'
CREATE TABLE u (id INT PRIMARY KEY, UNIQUE (a)) LOCATION 'other' !! not supported
CREATE TABLE u (id INT, PRIMARY KEY (id + 1)) LOCATION 'other' !! found: \+
CREATE TABLE u (id INT PRIMARY KEY) USING memwal LOCATION !! text in single quotes
CREATE TABLE u (id INT PRIMARY KEY) LOCATION 'other' LOCATION 'b' !! given twice
CREATE TABLE u (id INT PRIMARY KEY) LOCATION 'other' CLUSTER BY (id) !! not have this clause
CREATE TABLE u (id INT PRIMARY KEY) LOCATION 'other' OPTIONS ('x' 'y') !! 'x' is not an
CREATE TABLE u (id INT PRIMARY KEY) PARTITIONED BY (x) LOCATION 'other' !! x
CREATE TABLE u (id INT PRIMARY KEY) LOCATION 'other' OPTIONS ('version' '1') !! leave the col
CREATE TABLE u LOCATION 'other' !! columns in parentheses
CREATE OR REPLACE TABLE u (id INT PRIMARY KEY) LOCATION 'other' !! run DROP TABLE first
CREATE TABLE t (id INT PRIMARY KEY) LOCATION 'other' !! has a table of this name
CREATE TABLE u (PRIMARY KEY (b)) LOCATION 'other' AS SELECT 1 AS a !! 'b' is not in
CREATE TABLE u (PRIMARY KEY (a)) LOCATION 'other' AS SELECT nope !! nope
CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION 't' OPTIONS ('color' 'red') !! 'color' is not an option
CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION 't' OPTIONS ('version' 'x') !! must be a number
CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION 't' OPTIONS ('consistency' 'x') !! consistency must be
CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION 's3://b/t' OPTIONS ('storage.request_timeout' 'never') !! failed to parse "never"
ALTER TABLE t ADD COLUMN b INT DEFAULT 1 !! null in existing rows: .* SET DEFAULT .* UPDATE
ALTER TABLE t ALTER COLUMN n SET DEFAULT id !! a default is a constant
ALTER TABLE t ALTER COLUMN n SET DEFAULT $n !! a default is a constant
ALTER TABLE t ALTER COLUMN id SET DEFAULT 1 !! primary key
ALTER TABLE t ALTER COLUMN n SET DEFAULT 'x' !! 'n': 'x' is not
ALTER TABLE t ADD COLUMN b VARCHAR(3) !! write TEXT.*column 28: 'VARCHAR'
ALTER TABLE t ADD COLUMN b STRUCT<a CHAR (3)[]> !! write TEXT.*column 37: 'CHAR'
CREATE TABLE u (id STRING(9) PRIMARY KEY) LOCATION 'other' !! write TEXT.*'STRING'
CREATE TABLE u (id INT, f FLOAT(53), PRIMARY KEY (id)) LOCATION 'other' !! length would be ignored
ALTER TABLE t ADD COLUMN b INT NOT NULL !! make them nullable
ALTER TABLE t ADD COLUMN b INT PRIMARY KEY !! can't be added
ALTER TABLE t DROP COLUMN id !! primary key
ALTER TABLE t DROP COLUMN nothing !! no such column.*column 27
ALTER TABLE t DROP COLUMN n CASCADE !! end of the statement
ALTER TABLE t RENAME TO u !! move the folder
ALTER TABLE t ALTER COLUMN n SET NOT NULL !! may still write nulls
ALTER TABLE t ALTER COLUMN n TYPE INT !! 'n' is int64, and can't become int32: .* drop this
ALTER TABLE t ALTER COLUMN n TYPE TEXT !! can't become string
ALTER TABLE t ALTER COLUMN n TYPE NOPE !! NOPE
ALTER TABLE t ALTER COLUMN id TYPE BIGINT !! primary key
ALTER TABLE t ALTER COLUMN n TYPE BIGINT USING n + 1 !! end of the statement
ALTER TABLE t ALTER COLUMN n SET STORAGE x !! can DROP NOT NULL, SET DEFAULT
ALTER TABLE t CLUSTER BY (a) !! expected ADD
ALTER TABLE t SET TBLPROPERTIES ('a' = 'b') !! no other options.*column 15: 'SET'
ALTER TABLE t UNSET TBLPROPERTIES ('a') !! no other options
ALTER TABLE t !! expected ADD
CREATE INDEX i ON t USING nothing (n) !! must be one of
CREATE INDEX i ON t (n, id) !! takes one column
CREATE INDEX i ON t (n) WITH (nothing = 1) !! nothing
DROP INDEX i !! ON and a table
DROP INDEX i ON t !! 'i' is not an index
DROP TABLE t, u !! one table only

-- tables of a catalog
CREATE TABLE lake.public.x (id INT PRIMARY KEY) LOCATION '/tmp/x' !! leave LOCATION
CREATE TABLE lake.public.x AS SELECT 1 AS a !! PRIMARY KEY .* is missing
CREATE TABLE lake.public.x (id INT PRIMARY KEY) USING csv !! does not have this clause
CREATE TABLE lake.public."../x" (id INT PRIMARY KEY) !! letters, digits
CREATE TABLE lake.public.events (id INT PRIMARY KEY) !! of this name
CREATE TABLE lake.public.plain (id INT PRIMARY KEY) !! of this name
DROP TABLE lake.public.plain !! mw.drop_table deletes
DROP TABLE lake.public.nothing !! no table of this name
DROP TABLE lake.public."events$regions" !! describes the table events
DROP TABLE lake.public.empty !! empty.lance contains no table: delete
CREATE SCHEMA lake.more !! only the schema 'public'
CREATE SCHEMA IF NOT EXISTS lake.more !! only the schema 'public'
CREATE TABLE lake.more.x (id INT PRIMARY KEY) !! only the schema 'public'
DROP SCHEMA lake.public !! only the schema 'public'
DROP TABLE lake.public."../other" !! no table of this name
SELECT * FROM lake.public."../other" !! not found
CREATE VIEW lake.public.v AS SELECT 1 !! has no views.*column 13: 'lake'
CREATE OR REPLACE VIEW lake.public.events AS SELECT 1 !! has no views

-- AS OF
SELECT * FROM t AS a VERSION AS OF 1 !! Expected|AS OF must follow
SELECT * FROM (SELECT 1) VERSION AS OF 1 !! AS OF must follow.*column 26: 'VERSION'
WITH w AS (SELECT 1) SELECT * FROM w FOR VERSION AS OF 1 !! AS OF must.*'FOR'
SELECT * FROM s VERSION AS OF 1 !! not a MemWAL table
SELECT * FROM t VERSION AS OF 99 !! 99
SELECT * FROM t VERSION AS OF 1.5 !! 1.5
SELECT * FROM t VERSION AS OF NULL !! expression in parentheses
SELECT * FROM t VERSION AS OF (NULL) !! give a version
SELECT * FROM t TIMESTAMP AS OF '2026-01-01' !! no time zone
SELECT * FROM t TIMESTAMP AS OF 3 !! 3
SELECT * FROM t VERSION AS OF $nope !! nope
DELETE FROM t VERSION AS OF 3 !! restore

-- searches and distances
SELECT <-> $q FROM t !! before its operator, at line 1, column 8
SELECT v <-> FROM t !! after its operator, at line 1, column 10
SELECT * FROM vector_search('t', column => 'v', [1, 2]) !! positional argument.*column 49
SELECT * FROM vector_search('t', 'v', column => 'v', vector => [1, 2]) !! given twice, at
SELECT * FROM vector_search('t', 'v', k => 3) !! the argument vector is missing
SELECT * FROM vector_search('t', 'v', vector => ) !! found: =>
SELECT * FROM vector_search('t', 'v', [1, 2], 3, {exact: true}, nprobes => 3) !! not both
SELECT * FROM vector_search('t', 'v', [1, 2], k => 3, nope => 3) !! nope
SELECT * FROM vector_search('t', 'v', $q, k => 3) !! \$q of a search can't be b'x'
SELECT * FROM vector_search('t', 'v', $missing) !! missing
SELECT * FROM vector_search('t', 'v', [1, 2] !! found: EOF

-- statements of other databases
VACUUM t !! collect_garbage
OPTIMIZE t !! memwal.compact
USE lake !! Unsupported

-- CALL
CALL other.job() !! Unsupported
CALL memwal.nope('t') !! no such procedure; there are.*'merge'
CALL memwal.merge !! Expected: \(
CALL memwal.merge() !! name in quotes
CALL memwal.merge(t) !! t
CALL memwal.merge('other') !! no MemWAL table
CALL memwal.merge('t', nope => 1) !! merge takes \(table, regions\): .*nope
CALL memwal.merge('t', progress => 1) !! merge takes \(table, regions\): .*progress
CALL memwal.merge('t', ['a'], 1) !! merge takes \(table, regions\): too many
CALL memwal.check('t', 1) !! check takes \(table\): too many
CALL memwal.checkpoint('t') !! takes \(table, name, expires\): missing .*'name'
CALL memwal.restore('t') !! give a version, a timestamp or a checkpoint
CALL memwal.restore('t', 1, checkpoint => 'x') !! give one of version, timestamp and checkpoint
CALL memwal.restore('t', timestamp => TIMESTAMP '2020-01-01T00:00:00') !! before the oldest version
CALL memwal.create_tag('t') !! create_tag takes \(table, name, version\): missing .*'name'
CALL memwal.create_tag('t', 'x', 99) !! version 99 can't be tagged 'x'
CALL memwal.drop_tag('t', 'x') !! no tag 'x'
CALL memwal.collect_garbage('t', true) !! takes \(table, dry_run, older_than, vers
CALL memwal.build_indexes('t', ['a', 'b']) !! 'a'
CALL memwal.merge('t', regions => 'a', 1) !! positional argument
CALL memwal.merge('t', regions => 'a', regions => 'b') !! given twice
CALL memwal.merge('t', regions => ) !! an expression
CALL memwal.collect_garbage('t', older_than => INTERVAL '1 month') !! has no length
CALL somebody.else(1) !! CALL

-- SET
SET datafusion.catalog.default_catalog = 'lake' !! datafusion\.public
SET DATAFUSION.catalog.Default_Schema = 'lake' !! datafusion\.public
SET memwal.isolation = 'read committed' !! 'read committed' must be 'snapshot'
SET memwal.level = 'snapshot' !! the settings are memwal.isolation, memwal.actor and memwal.atomic, at line 1, column 5
SET memwal.timeout = '1s' !! there is no time limit
SET memwal.isolation 'snapshot' !! Expected: equals sign or TO
SET memwal.isolation = !! Expected: variable value
SET memwal.actor = 5 !! as a word or in quotes: SET memwal.actor = 'loader', at line 1
set memwal . actor TO a.b !! as a word or in quotes: SET memwal.actor = 'loader'
SET memwal.actor = 'a', 'b' !! as a word or in quotes: SET memwal.actor = 'loader'

-- mistakes that users make
SELECT id FROM t FOR SYSTEM_TIME AS OF now() !! expression in parentheses.*column 40: 'now'
SELECT id FROM t VERSION AS OF -1 !! expression in parentheses
UPDATE t VERSION AS OF 1 SET n = 2 !! restore\(.*column 10: 'VERSION'
DELETE FROM t FOR VERSION AS OF 1 !! restore\(
INSERT INTO t VERSION AS OF 1 VALUES (1) !! restore\(
MERGE INTO t VERSION AS OF 1 USING s ON t.id = s.id WHEN MATCHED THEN DELETE !! restore\(
COPY t FROM 'f.csv' !! found: FROM
COPY t TO 'b.csv' WITH (FORMAT csv) !! found: \(, at line 1, column 24
COPY t TO STDOUT !! found: STDOUT
COPY t TO 'b' !! Use STORED AS
DELETE FROM t WHERE 1 / (n - n) = 0 !! Divide by zero
SELECT 1 / 0 !! Divide by zero
CALL merge('t') !! CALL memwal\.merge\('table', ...\)
SELECT * FROM t WHERE match(n, '1') !! no column of texts
DELETE t WHERE id = 1 !! Expected: FROM, found: t, at line 1, column 8: 't'
DELETE FROM t WHERE !! Expected: an expression, .*the end
DELETE FROM t id = 3 !! the end of the statement, found: =
UPDATE t SET n = 3 WHERE !! Expected: an expression
UPDATE t SET v.x = 3 !! one by one: set all of 'v', at line 1, column 14: 'v'
INSERT INTO t (id, t.v.x) VALUES (1, 2) !! one by one.*column 20: 't'
UPDATE t SET s.n = 3 !! 's' is not the table that is written
DELETE FROM t RETURNING count(*) !! an aggregate or window function is not allowed here
INSERT INTO t VALUES (9, 9, [0, 0], '') RETURNING id, max(n) + 1 !! an aggregate or
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = sum(s.n) !! an aggregate
INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE n = 3 !! ON CONFLICT DO UPDATE
UPSERT INTO t VALUES (1) !! found: UPSERT, at line 1, column 1
CREATE UNIQUE INDEX i ON t (n) !! only the primary key is
CREATE TABLE x (id NOPE PRIMARY KEY) LOCATION 'x' !! can't be read: Unsupported SQL type NOPE
ALTER TABLE t ADD COLUMN !! Expected: identifier, .*the end
ALTER TABLE t ADD COLUMN x !! Expected: a data type name
DROP TABLE "t$regions" !! describes the table t
DELETE FROM "t$regions" !! MemWAL tables only: ctx\.sql
DELETE FROM s WHERE nope = 1 !! MemWAL tables only: ctx\.sql
TRUNCATE s !! MemWAL tables only$
MERGE INTO s USING t ON t.id = s.id WHEN MATCHED THEN DELETE !! MemWAL tables only
SELECT id FROM t WHERE c = "Oslo" !! single quotes: 'Oslo'
SELECT id FROM t WHERE id = $1 !! \*\*\{'1': ...\}
SELECT id FROM t WHERE id = $x !! mw\.sql\(ctx, text, x=...\)
SELECT id FROM lake.public.nope !! not found\nmw.register
INSERT INTO nope VALUES (1) RETURNING id !! not found\nmw.register
UPDATE nope SET n = 1 RETURNING n !! not found\nmw.register
MERGE INTO nope USING t ON true WHEN MATCHED THEN DELETE !! not found\nmw.register
ALTER TABLE nope ADD COLUMN a INT !! not found\nmw.register
ALTER TABLE lake.public.nope DROP COLUMN a !! not found
DROP INDEX i ON nope !! not found\nmw.register
DROP INDEX i ON s !! not a MemWAL table.*column 17: 's'
CREATE INDEX ON s (n) !! not a MemWAL table.*column 17: 's'
ALTER TABLE s ADD COLUMN a INT !! not a MemWAL table.*column 13: 's'
CREATE VIEW v AS SELECT * FROM t VERSION AS OF 'then' !! AS OF is for.*column 34.*as_of\(
CREATE TABLE x AS SELECT * FROM t FOR SYSTEM_TIME AS OF $1 !! AS OF is for.*column 35: 'FOR'
INSERT INTO s SELECT id, n FROM t VERSION AS OF 1 !! AS OF is for.*column 35: 'VERSION'
CREATE TABLE nope.public.x (id INT PRIMARY KEY) LOCATION 'x' !! no catalog 'nope'.*column 14
CREATE TABLE nope.x (id INT PRIMARY KEY) LOCATION 'x' !! no schema 'nope'.*column 14: 'nope'
CREATE TABLE nope.x (PRIMARY KEY (id)) LOCATION 'x' AS SELECT 1 AS id !! no schema 'nope'
CREATE EXTERNAL TABLE no.pe.x STORED AS MEMWAL LOCATION 'x' !! no catalog 'no'.*column 23
CREATE TABLE a.b.c.d (id INT PRIMARY KEY) LOCATION 'x' !! three parts.*column 14: 'a'
DROP TABLE nope.public.x !! doesn't exist
ALTER TABLE nope.public.x ADD COLUMN a INT !! not found
CREATE TABLE x (id INT PRIMARY KEY, v VECTOR(3)) LOCATION 'x' !! FLOAT\[3\].*column 39: 'VE
ALTER TABLE t ADD COLUMN w VECTOR(3) !! FLOAT\[3\].*column 28: 'VECTOR'
SAVEPOINT a !! a statement that fails leaves what the transaction
EXPLAIN FORMAT nope SELECT 1 !! indent, tree, pgjson or graphviz, .* at line 1, column 16
EXPLAIN FORMAT !! indent, tree, pgjson or graphviz
EXPLAIN CREATE TABLE x (id INT PRIMARY KEY) LOCATION 'x' !! EXPLAIN shows plans of queries
EXPLAIN DROP TABLE t !! EXPLAIN shows plans of queries
EXPLAIN SET memwal.isolation = 'snapshot' !! EXPLAIN shows plans of queries
EXPLAIN ALTER TABLE t ADD COLUMN x INT !! EXPLAIN shows plans of queries.*column 9: 'ALTER'
EXPLAIN CALL memwal.merge('t') !! EXPLAIN shows plans of queries
CREATE INDEX ON t USING fts (c) WITH (language = 'Nope') !! 'Nope'.*expected one of `Arabic`
CREATE INDEX ON t USING fts (c) WITH (stem = 'maybe') !! stem='maybe' must be true or false
CREATE INDEX ON t USING fts (c) WITH (with_position = 1) !! with_position=1 must be true or
CREATE INDEX ON t USING fts (c) WITH (max_token_length = 'x') !! max_token_length
SELECT * FROM t WHERE match(c) !! (?s)match.*Candidate functions:.*match\(Utf8, Utf8\)
DELETE FROM t WHERE row_number() OVER () = 1 !! ^an aggregate or window function is not allowed here: compute it in a subquery$
UPDATE t SET n = 1 WHERE rank() OVER (ORDER BY id) = 1 !! ^an aggregate or window function
MERGE INTO t USING s ON row_number() OVER () = 1 WHEN MATCHED THEN DELETE !! ^an aggregate or window function is not allowed here: compute it in a subquery$
MERGE INTO t USING s ON t.id = s.id WHEN MATCHED AND rank() OVER () > 1 THEN DELETE !! ^an aggregate or window function
INSERT INTO t (id, n) VALUES (9, row_number() OVER ()) !! ^an aggregate or window function
INSERT INTO t (id, n) VALUES (9, count(*)) !! ^an aggregate or window function
SELECT id FROM t WHERE row_number() OVER () = 1 !! ^an aggregate or window function
SELECT $id.n FROM t !! ^Dot access not supported for non-string expr: Identifier$
SELECT $1, $2 !! \*\*\{'1': ...\}
SELECT $one, $two !! mw\.sql\(ctx, text, one=...\)
SELECT * FROM t FOR SYSTEM_TIME BETWEEN '2026-01-01' AND '2026-01-02' !! only AS OF reads the past, as in VERSION AS OF 7
SELECT * FROM t FOR SYSTEM_TIME FROM '2026-01-01' TO '2026-01-02' !! only AS OF reads the past, as in VERSION AS OF 7
SELECT * FROM t FOR SYSTEM_TIME ALL !! only AS OF reads the past, as in VERSION AS OF 7
SELECT * FROM t FOR SYSTEM_VERSION 7 !! only AS OF reads the past, as in VERSION AS OF 7
SELECT * FROM t FOR VERSION BETWEEN 1 AND 2 !! only AS OF reads the past, as in VERSION AS OF 7
UPDATE t SET n = s.n FROM t FOR TIMESTAMP CONTAINED IN (1, 2) AS s !! only AS OF reads the past, as in VERSION AS OF 7
SELECT * FROM t WHERE id = 'x !! column 28
SELECT * FROM t WHERE id = 3) !! found: \), at line 1, column 29

-- places in a text that is read as it is written
SELECT id, (1 + * 2) FROM t !! , at line 1, column 17:
\n  SELECT /* é */ id\n FROM t WHERE id = (1 + ) ; !! , at line 3, column 25:
SELECT id FROM t VERSION AS OF 'then' AS old WHERE n = (1 + ) !! , at line 1, column 61:
WITH w AS (SELECT 1 + * 2 AS id) SELECT * FROM w JOIN t USING (id) !! , at line 1, column 23:
COPY (SELECT 1 + * 2 AS n FROM t) TO 'nowhere.parquet' !! , at line 1, column 18:
CREATE VIEW w AS SELECT 1 + * 2 AS id FROM t !! , at line 1, column 29:
\nDELETE FROM t WHERE !! , at line 2, column 20:
\n UPDATE t SET zork = 3 !! , at line 2, column 15:
UPDATE t SET n = (1 + * 2) !! , at line 1, column 23:
SELECT v <-> [1, 2], (1 + * 2) FROM t !! , at line 1, column 27:

-- rows of other tables, which are left to DataFusion
INSERT INTO s VALUES (7, 7) !! of MemWAL tables only
DELETE FROM s !! of MemWAL tables only
DELETE FROM s WHERE id IN (SELECT id FROM due) !! of MemWAL tables only
DELETE FROM s WHERE EXISTS (FROM due) !! of MemWAL tables only
DELETE FROM s WHERE NOT EXISTS (VALUES (1)) !! of MemWAL tables only
DELETE FROM s WHERE EXISTS (WITH w AS (VALUES (1)) FROM due) !! of MemWAL tables only
UPDATE s SET n = 0 WHERE EXISTS (FROM due) !! of MemWAL tables only
UPDATE s SET n = 0 !! of MemWAL tables only
TRUNCATE TABLE s !! of MemWAL tables only
MERGE INTO s USING due ON s.id = due.id WHEN MATCHED THEN DELETE !! of MemWAL tables only
PREPARE p AS DELETE FROM s !! ctx\.sql|only a query
PREPARE p AS DELETE FROM s WHERE EXISTS (FROM due) !! ctx\.sql|only a query
PREPARE p AS UPDATE s SET n = 0 !! ctx\.sql|only a query
PREPARE p AS MERGE INTO s USING due ON s.id = due.id WHEN MATCHED THEN DELETE !! ctx\.sql|only a query

-- EXPLAIN ANALYZE, which would run what it explains
EXPLAIN ANALYZE INSERT INTO t (id) VALUES (7) !! would run the
EXPLAIN ANALYZE DELETE FROM t !! would run the
EXPLAIN ANALYZE UPDATE t SET id = 7 WHERE id = 1 !! would run the
EXPLAIN ANALYZE WITH x AS (SELECT 7) INSERT INTO t (id) SELECT * FROM x !! would run the
EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv' !! only a query
EXPLAIN ANALYZE CREATE TABLE z AS SELECT 1 !! EXPLAIN shows plans
EXPLAIN ANALYZE INSERT INTO s VALUES (7, 7) !! EXPLAIN shows plans
EXPLAIN ANALYZE DELETE FROM s !! EXPLAIN shows plans
EXPLAIN ANALYZE DELETE FROM s WHERE id IN (SELECT id FROM due) !! EXPLAIN shows plans
EXPLAIN ANALYZE DELETE FROM s WHERE EXISTS (FROM due) !! EXPLAIN shows plans
EXPLAIN ANALYZE DELETE FROM s WHERE NOT EXISTS (VALUES (1)) !! EXPLAIN shows plans
EXPLAIN ANALYZE DELETE FROM s WHERE EXISTS (WITH w AS (VALUES (1)) FROM due) !! EXPLAIN shows plans
EXPLAIN ANALYZE UPDATE s SET n = 0 WHERE EXISTS (FROM due) !! EXPLAIN shows plans
EXPLAIN ANALYZE UPDATE s SET n = 0 !! EXPLAIN shows plans
EXPLAIN ANALYZE TRUNCATE TABLE s !! EXPLAIN shows plans
EXPLAIN ANALYZE MERGE INTO s USING due ON s.id = due.id WHEN MATCHED THEN DELETE !! EXPLAIN shows plans
EXPLAIN (ANALYZE) DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN (ANALYZE) DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN (ANALYZE, VERBOSE) DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN (ANALYZE, VERBOSE) DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN (FORMAT TREE, ANALYZE true) DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN (FORMAT TREE, ANALYZE true) DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN ANALYZE VERBOSE DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN ANALYZE VERBOSE DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN ANALYZE EXPLAIN ANALYZE DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN ANALYZE EXPLAIN ANALYZE DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN EXPLAIN ANALYZE DELETE FROM t !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
EXPLAIN EXPLAIN ANALYZE DELETE FROM s WHERE EXISTS (FROM due) !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
PREPARE p AS EXPLAIN ANALYZE DELETE FROM s !! would run the|EXPLAIN shows plans|only a query|FORMAT tree
