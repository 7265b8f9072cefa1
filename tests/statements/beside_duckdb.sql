-- Statements that DuckDB runs as we do, but for INSERT and REPLACE without ON CONFLICT, which it writes INSERT OR
-- REPLACE. t has the primary key (tenant, id); new, with the columns of t, has other rows for each statement.

DELETE FROM t WHERE id = 3;
DELETE FROM t AS z WHERE z.n > 5 AND z.tenant = 'a';
delete from t where id in (select id from due where n = 2);
DELETE FROM t WHERE id NOT IN (SELECT id FROM due WHERE id IS NOT NULL) AND n < 3;
DELETE FROM t WHERE EXISTS (SELECT 1 FROM due WHERE due.id = t.id AND due.n = 1);
DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM due d WHERE d.id = t.id) AND t.n = 4;
DELETE FROM t WHERE n > (SELECT avg(n) + 4 FROM t);
DELETE FROM t USING due WHERE t.id = due.id AND due.n = 3;
DELETE FROM t USING due WHERE t.id = due.id RETURNING *;
DELETE FROM t AS z WHERE n = 1 RETURNING z.id + 1 AS next, tenant || 'x';
WITH d AS (SELECT max(id) AS m FROM due) DELETE FROM t USING d WHERE t.id = d.m RETURNING id;
WITH d AS (SELECT id FROM due) UPDATE t SET n = 3 WHERE id IN (SELECT id FROM d) RETURNING *;
UPDATE t SET n = n + 2 WHERE id > 3 RETURNING id, n * 2, "Name";
UPDATE t SET id = id + 100 WHERE n = 3 RETURNING *;
UPDATE t SET id = id - 1, n = 5 WHERE id > 90;
UPDATE t SET n = n + 1;
UPDATE t SET n = 7, "Name" = 'x' || "Name" WHERE id < 4;
UPDATE t SET "Name" = NULL WHERE id = 5 AND n IS DISTINCT FROM 2;
UPDATE t SET n = (SELECT max(n) FROM due) WHERE t.id = 1;
UPDATE t SET n = (SELECT max(x) FROM (SELECT unnest([1, 2]) AS x)) WHERE t.id = 1;
UPDATE t SET n = (SELECT max(due.n) FROM due WHERE due.id = t.id) WHERE id IN (1, 2);
UPDATE t SET n = 0 WHERE n > (SELECT avg(n) FROM t);
UPDATE t SET n = d.n FROM (SELECT id, max(n) AS n FROM due GROUP BY id) d WHERE t.id = d.id;
UPDATE t SET n = CASE WHEN "Name" IS DISTINCT FROM 'b' THEN 1 ELSE 2 END WHERE id > 6;
INSERT INTO t SELECT * FROM new;
INSERT INTO t VALUES ('a', 3, 4, NULL), ('b', 70, NULL, 'x') RETURNING *;
INSERT INTO t (id, n, tenant) SELECT id, n + 1, tenant FROM new RETURNING *;
INSERT INTO t ("Name", "id", tenant) SELECT 'x', id, tenant FROM new RETURNING *;
INSERT INTO t BY NAME SELECT 'q' AS "Name", id, tenant FROM new;
INSERT INTO t SELECT * FROM new ON CONFLICT DO NOTHING RETURNING id, n;
INSERT INTO t (tenant, id, n) VALUES ('a', 5, 1), ('a', 80, 1), ('a', 80, 2) ON CONFLICT DO NOTHING;
INSERT INTO t AS x SELECT * FROM new ON CONFLICT (id, tenant) DO UPDATE SET n = x.n + excluded.n WHERE x.n <
6 RETURNING x.n, id;
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = n + 1, "Name" = coalesce(excluded."Name",
t."Name", 'none');
WITH w AS (SELECT id FROM due WHERE n = 3) INSERT INTO t (tenant, id, n) SELECT 'b', id, 33 FROM w ON
CONFLICT DO UPDATE SET n = excluded.n RETURNING *;
INSERT INTO t VALUES (1, 3, 4, DATE '2024-01-02'), (2, 3, 4, NULL) RETURNING *;
INSERT INTO t VALUES ('a', 3, 4, true);
REPLACE INTO t SELECT tenant, id, 1, NULL FROM new;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n +
s.n;
MERGE INTO t USING new s ON t.tenant = s.tenant AND t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT
MATCHED THEN INSERT *;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN MATCHED AND s.n > 4 THEN DELETE WHEN
MATCHED AND t.n IS DISTINCT FROM s.n THEN UPDATE SET n = s.n, "Name" = s."Name" WHEN NOT MATCHED THEN INSERT
(tenant, id, n) VALUES (s.tenant, s.id, s.n) RETURNING merge_action, *;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN MATCHED THEN DO NOTHING WHEN NOT
MATCHED THEN INSERT *;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN NOT MATCHED AND s.n > 3 THEN INSERT *
WHEN NOT MATCHED BY TARGET THEN INSERT VALUES (s.tenant, s.id, 0, 'new');
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN NOT MATCHED BY SOURCE AND n = 3 THEN
DELETE;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN NOT MATCHED THEN INSERT * WHEN NOT
MATCHED BY SOURCE AND t.n < 2 THEN DELETE WHEN NOT MATCHED BY SOURCE AND id < 4 THEN UPDATE SET "Name" =
'old' WHEN MATCHED THEN UPDATE SET n = CASE WHEN s.n > 3 THEN 1 ELSE 2 END RETURNING *;
MERGE INTO t AS x USING (SELECT id, max(n) AS m FROM due GROUP BY id) AS s ON x.id = s.id WHEN MATCHED AND
x.tenant = 'a' THEN UPDATE SET n = s.m RETURNING x.id, merge_action, n + 1;
MERGE INTO t USING (VALUES ('a', 3), ('b', 77)) AS s(k, i) ON (t.tenant = s.k AND s.i = t.id) WHEN MATCHED
THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant, id, "Name") VALUES (s.k, s.i, 'v');
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET n = 8
WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES (s.tenant, s.id + 1);
MERGE INTO t USING (VALUES ('a'), ('b')) AS s(k) ON t.tenant = s.k AND t.id = n WHEN MATCHED THEN UPDATE SET
"Name" = 'both' RETURNING *;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id AND t.n > 3 WHEN MATCHED THEN UPDATE SET
n = 0;
WITH big AS (SELECT * FROM new WHERE n > 3) MERGE INTO t USING big AS s ON t.tenant = s.tenant AND t.id =
s.id WHEN NOT MATCHED THEN INSERT * WHEN MATCHED THEN UPDATE SET "Name" = s."Name" || s.tenant;
MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id WHEN MATCHED AND s.n > (SELECT avg(n)
FROM t) THEN DELETE;
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = excluded.n + n
WHERE t.n = abs(excluded.n);
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = CASE WHEN excluded."Name" = "Name" THEN n ELSE excluded.n + 1 END
WHERE t.n = 8 - excluded.n;
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = excluded.n + n
WHERE t.n = coalesce(excluded.n, 0) AND t."Name" = excluded."Name";
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = CASE WHEN excluded."Name" = "Name" THEN n ELSE excluded.n + 1 END
WHERE t.n + t.id = excluded.n + excluded.id - 1;
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = excluded.n + n
WHERE lower(excluded."Name") = t."Name";
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = CASE WHEN excluded."Name" = "Name" THEN n ELSE excluded.n + 1 END
WHERE excluded.n + 0 = t.n OR t."Name" IS NULL;
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = excluded.n + n
WHERE t.n IN (excluded.n, excluded.id - 6);
INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = CASE WHEN excluded."Name" = "Name" THEN n ELSE excluded.n + 1 END
WHERE t.n < excluded.n AND excluded."Name" IS DISTINCT FROM t."Name";
UPDATE t SET n = 8 WHERE id IN (SELECT n FROM due);
UPDATE t SET n = 8 WHERE id = 3 OR n IN (SELECT n FROM due);
UPDATE t SET n = 8 WHERE id NOT IN (SELECT n FROM due);
UPDATE t SET n = 8 WHERE id NOT IN (SELECT n FROM due WHERE n IS NOT NULL);
UPDATE t SET n = 8 WHERE n NOT IN (SELECT id FROM due) AND id > 0;
UPDATE t SET n = 8 WHERE NOT (n IN (SELECT id FROM due x WHERE x.id > 1));
UPDATE t SET n = 8 WHERE NOT n IN (SELECT due.id FROM due);
UPDATE t SET n = 8 WHERE id + 1 NOT IN (SELECT id FROM due);
UPDATE t SET n = 8 WHERE id NOT IN (SELECT id FROM due WHERE id NOT IN (SELECT n FROM due));
UPDATE t SET n = 8 WHERE EXISTS (SELECT 1 FROM due WHERE due.id = t.id AND due.n IN (SELECT n FROM t));
UPDATE t SET n = 8 WHERE NOT (EXISTS (SELECT 1 FROM due WHERE due.id = t.id AND due.n IN (SELECT n FROM t)));
UPDATE t SET n = 8 WHERE (id IN (SELECT n FROM due)) IS TRUE;
UPDATE t SET n = 8 WHERE 5 <> ALL (SELECT n FROM due);
UPDATE t SET n = 8 WHERE id = 1 OR n <> ALL (SELECT n FROM due);
