"""What DataFusion 55 answers wrongly is right in `mw.sql`, or refused with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import in_turns

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = pa.table({"id": [1, 2, 3, 4], "v": [10, 20, None, 40]}, schema=SCHEMA)
OTHERS = pa.table({"id": [2, 4, 5], "v": [20, None, 50]}, schema=SCHEMA)
LIMITS = pa.table({"k": [1, 2, 4], "x": [50, 5, 30]})

RIGHT = """
id = ANY (SELECT id FROM t WHERE v > 20)
t.id = ANY (SELECT t.id FROM t WHERE t.v > 20)
id = SOME (SELECT id FROM t WHERE v > 20)
v >= ALL (SELECT v FROM t WHERE v IS NOT NULL)
v >= ALL (SELECT v FROM t)
v < ALL (SELECT v FROM t WHERE id > 1)
id <> ALL (SELECT id FROM t WHERE v > 20)
NOT (id = ANY (SELECT id FROM t WHERE v > 20))
id = ANY (SELECT DISTINCT id FROM t WHERE v > 20)
id = ANY (SELECT id FROM t WHERE v > 5 GROUP BY id HAVING count(*) = 1 ORDER BY id)
id = ANY ((SELECT id FROM t WHERE v > 20))
id = ANY (SELECT id FROM u WHERE u.v = t.v)
id = ANY (SELECT id FROM u WHERE u.id = ANY (SELECT id FROM t WHERE v > 20))
id = ANY (SELECT max(id) FROM t)
coalesce(v = ANY (SELECT v FROM u), true)
coalesce(v <> ALL (SELECT v FROM u), true)
(v <> ALL (SELECT v FROM u)) IS NULL
CASE WHEN v <> ALL (SELECT v FROM u) THEN false ELSE true END
v <> ALL (SELECT v FROM u) OR id = 1
id IN (SELECT id FROM t EXCEPT SELECT id FROM u)
id IN (SELECT coalesce(a.id, b.id) FROM t AS a FULL JOIN u AS b USING (id) WHERE b.v = 20)
CASE WHEN id IN (SELECT id FROM u) THEN v > 5 ELSE false END
id = ANY (SELECT (id) AS x FROM t WHERE v > 20)
id = ANY (SELECT CAST(id AS bigint) FROM t WHERE v > 20)
v > ALL (SELECT x FROM o WHERE k = id)
v > ALL (SELECT x + 1 FROM o WHERE k = id)
v > ALL (SELECT max(x) FROM o)
v > ALL (SELECT max(x) FROM o WHERE o.k > 1)
v IN (SELECT b.v FROM t AS a FULL JOIN u AS b USING (id) JOIN u AS c ON c.id = b.id)
id IN (SELECT c.id FROM t AS a JOIN u AS b USING (id) RIGHT JOIN u AS c USING (id))
id IN (SELECT x.id FROM (t LEFT JOIN u USING (id)) AS x)
v = ANY (SELECT s.v AS x FROM (SELECT v FROM u WHERE v > 1 ORDER BY v LIMIT 1 OFFSET 1) AS s)
id IN (SELECT id FROM u WHERE id = 1 UNION ALL (SELECT id FROM u ORDER BY id LIMIT 1 OFFSET 1))
EXISTS (SELECT 1 FROM u WHERE u.id = t.id LIMIT 1)
v <= ALL (SELECT u.v FROM u WHERE u.id >= t.id LIMIT 9)
NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.id LIMIT 0)
""".strip().splitlines()

REFUSED = {
    "id = ANY (SELECT * FROM u)": "by name",
    "id = ANY (SELECT id AS id FROM t WHERE v > 20)": "by name",
    "id = ANY (SELECT t.id AS id FROM t WHERE v > 20)": "by name",
    "id = ANY (SELECT id FROM t UNION SELECT id FROM u)": "by name",
    "id = ANY (SELECT (id) FROM t WHERE v > 20)": "by name",
    "id <> ALL (SELECT ((t.id)) FROM t WHERE v > 20)": "by name",
    "id = ANY (SELECT (id) AS id FROM t WHERE v > 20)": "by name",
    "id = ANY (SELECT +id FROM t WHERE v > 20)": "by name",
    "id = ANY (SELECT +(+t.id) AS id FROM t WHERE v > 20)": "by name",
    "id > ALL (SELECT max(id) FROM u WHERE u.id = t.id)": "EXISTS",
    "v > ALL (SELECT max(x) FROM o WHERE k = id)": "as in u.k",
    "v <= ALL (SELECT max(o.x) + 0 AS m FROM o WHERE o.k = id)": "as in u.k",
    "v > ANY (SELECT count(*) FROM o WHERE k = id)": "as in u.k",
    "EXISTS (SELECT 1 FROM u WHERE u.id = t.id OFFSET 1)": "count",
    "NOT EXISTS ((SELECT 1 FROM u WHERE u.id = t.id LIMIT 3 OFFSET 1))": "count",
    "EXISTS (SELECT 1 FROM u WHERE u.id = t.id LIMIT 1, 2)": "count",
    "id = ANY (SELECT u.id AS x FROM u WHERE u.id = t.id OFFSET (1))": "stand in FROM",
    "v > 5 AND v <> ALL (SELECT u.v FROM u WHERE u.id = t.id LIMIT 2 OFFSET 1)": "count",
    "id IN (SELECT id FROM t EXCEPT ALL SELECT id FROM u)": "row_number",
    "id IN (SELECT id FROM t INTERSECT ALL SELECT id FROM u)": "row_number",
    "id IN (SELECT id FROM t AS a RIGHT JOIN u AS b USING (id))": "coalesce",
    "EXISTS (SELECT * FROM t AS a FULL JOIN u AS b USING (id))": "coalesce",
    "id IN (SELECT id FROM t AS a NATURAL RIGHT JOIN u AS b)": "coalesce",
    "v NOT IN (SELECT c.v FROM t AS a FULL JOIN u AS b USING (id) JOIN u AS c USING (id))": "coal",
    "v IN (SELECT c.v FROM t a RIGHT JOIN u AS b USING (id) LEFT JOIN u AS c USING (id))": "coal",
    "v IN (SELECT c.v FROM t AS a FULL JOIN u AS b USING (id) NATURAL JOIN u AS c)": "coal",
    "v IN (SELECT c.v FROM t AS a NATURAL FULL JOIN u AS b JOIN u AS c USING (id))": "coal",
    "v IN (SELECT c.v FROM u AS c JOIN (t AS a RIGHT JOIN u AS b USING (id)) USING (id))": "coal",
    "id IN (SELECT x.id FROM (t RIGHT JOIN u USING (id)) AS x)": "coalesce",
    "id IN (SELECT x.id FROM (t NATURAL FULL JOIN u) AS x)": "coalesce",
    "id IN (SELECT id FROM u TABLESAMPLE (10 PERCENT))": "random",
    "id IN (SELECT id FROM u FOR UPDATE)": "lock nothing",
    "random() BETWEEN 0.4 AND 0.6": "AS r",
    "coalesce(random(), 1) > 0.5": "AS r",
    "coalesce(v IN (SELECT v FROM u), true)": "= ANY",
    "(CASE WHEN id > 1 THEN v IN (SELECT v FROM u) END) IS NULL": "= ANY",
    "(v IN (SELECT v FROM u)) = false": "= ANY",
    "v NOT IN (SELECT v FROM u) OR id = 1": "<> ALL",
}


@pytest.fixture
def ctx(tmp_path: Path) -> Iterator[datafusion.SessionContext]:
    ctx = datafusion.SessionContext()
    with mw.create_table(tmp_path / "t", SCHEMA, primary_key="id") as table:
        mw.register(ctx, "t", table)
        ctx.from_arrow(OTHERS, name="u")
        ctx.from_arrow(LIMITS, name="o")
        yield ctx


def live(ctx: datafusion.SessionContext) -> list[tuple[int, int | None]]:
    rows = mw.sql(ctx, "SELECT id, v FROM t ORDER BY id").to_pylist()
    return [(row["id"], row["v"]) for row in rows]


CHANGES = (
    "DELETE FROM t WHERE {}",
    "UPDATE t SET v = 0 WHERE {}",
    "INSERT INTO t SELECT id + 10 AS id, v FROM t WHERE {}",
    "MERGE INTO t AS m USING (SELECT id, v FROM t WHERE {}) AS s ON m.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v + 1",
)


def test_quantifiers_over_the_same_table_change_the_rows_that_duckdb_changes(
    ctx: datafusion.SessionContext,
) -> None:
    with duckdb.connect() as other:
        other.execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint)")
        other.execute("CREATE TABLE u AS FROM OTHERS")
        other.execute("CREATE TABLE o AS FROM LIMITS")
        for number, condition in enumerate(RIGHT):
            for statement in in_turns(CHANGES, number, 4):
                text = statement.format(condition)
                mw.sql(ctx, "DELETE FROM t")
                mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20), (3, NULL), (4, 40)")
                other.execute("DELETE FROM t")
                other.execute("INSERT INTO t FROM ROWS")
                query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
                found = mw.sql(ctx, query).to_pylist()
                expected = other.execute(query).fetchall()
                assert [(row["id"],) for row in found] == expected, query
                mw.sql(ctx, text)
                other.execute(text)
                assert live(ctx) == other.execute("FROM t ORDER BY id").fetchall(), text


def test_a_view_has_the_rows_of_its_query_and_so_has_a_table(
    ctx: datafusion.SessionContext,
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20), (3, NULL), (4, 40)")
    for condition in RIGHT:
        query = f"SELECT id FROM t WHERE {condition}"
        expected = sorted(row["id"] for row in mw.sql(ctx, query).to_pylist())
        for kind in ("VIEW", "TABLE"):
            mw.sql(ctx, f"  CREATE OR REPLACE {kind} {kind}_q AS /* é */ {query} ;")
            found = mw.sql(ctx, f"SELECT id FROM {kind}_q ORDER BY id").to_pylist()
            assert [row["id"] for row in found] == expected, (kind, query)


def test_rows_without_columns_are_counted_wherever_they_are(
    ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20), (3, NULL)")
    with mw.create_table(tmp_path / "w", SCHEMA, primary_key="id") as other:
        mw.register(ctx, "w", other)
        insert = "INSERT INTO w VALUES (5, 50), (6, 60)"
        for state in ("SELECT 1", insert, "CALL memwal.flush('w')", "CALL memwal.merge('w')"):
            mw.sql(ctx, state)
            rows = 0 if state == "SELECT 1" else 2
            for query, expected in (
                ("t WHERE EXISTS (SELECT 1 FROM w)", 3 if rows else 0),
                ("t WHERE NOT EXISTS (SELECT 1 FROM w)", 0 if rows else 3),
                ("t LEFT JOIN w ON true", 3 * max(rows, 1)),
                ("w RIGHT JOIN t ON true", 3 * max(rows, 1)),
                ("t, w", 3 * rows),
            ):
                (found,) = mw.sql(ctx, f"SELECT count(*) AS n FROM {query}").to_pylist()
                assert found["n"] == expected, (state, query)
            if rows:
                mw.sql(ctx, "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM w)")
                assert len(live(ctx)) == 3, state


def test_what_can_not_be_right_is_refused_with_the_way_out(
    ctx: datafusion.SessionContext,
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20), (3, NULL), (4, 40)")
    before = live(ctx)
    for condition, way in REFUSED.items():
        with pytest.raises(mw.UnsupportedError, match=way):
            mw.sql(ctx, f"DELETE FROM t WHERE {condition}")
        assert live(ctx) == before, condition
        with pytest.raises(mw.UnsupportedError, match=way):
            mw.sql(ctx, f"SELECT id FROM t WHERE {condition}").collect()
        for start in ("CREATE VIEW q AS", "CREATE TABLE q AS", "PREPARE q AS"):
            with pytest.raises(mw.UnsupportedError, match=way):
                mw.sql(ctx, f"{start} SELECT id FROM t WHERE {condition}")


def test_no_table_is_read_while_joins_lose_rows(ctx: datafusion.SessionContext) -> None:
    setting = "datafusion.optimizer.enable_piecewise_merge_join"
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10)")
    mw.sql(ctx, f"SET {setting} = true")
    merge = "MERGE INTO t USING u ON t.id < u.id WHEN NOT MATCHED BY SOURCE THEN DELETE"
    for text in (merge, "SELECT t.id FROM t LEFT JOIN u ON t.v < u.v", "DELETE FROM t"):
        with pytest.raises(mw.UnsupportedError, match=f"{setting} to false"):
            mw.sql(ctx, text)
    mw.sql(ctx, f"SET {setting} = false")
    assert live(ctx) == [(1, 10)]


def test_a_transaction_that_only_reads_changes_nothing(ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10)")
    for begin in (
        "BEGIN READ ONLY",
        "START TRANSACTION READ ONLY",
        "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY",
    ):
        mw.sql(ctx, begin)
        with pytest.raises(mw.UnsupportedError, match="READ ONLY"):
            mw.sql(ctx, "UPDATE t SET v = 11")
        for values in ("VALUES (2, 20)", "SELECT id + 1, v FROM t"):
            with pytest.raises(Exception, match=r"UnsupportedError: .* READ ONLY: ROLLBACK"):
                ctx.sql(f"INSERT INTO t {values}").collect()
        assert live(ctx) == [(1, 10)]
        mw.sql(ctx, "COMMIT")
        assert live(ctx) == [(1, 10)]
    mw.sql(ctx, "BEGIN READ WRITE")
    mw.sql(ctx, "UPDATE t SET v = 11")
    mw.sql(ctx, "COMMIT")
    assert live(ctx) == [(1, 11)]


REFUSED_BEGINS = (
    "BEGIN ISOLATION LEVEL READ COMMITTED",
    "BEGIN TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    "START TRANSACTION READ",
    "begin exclusive",
    "/* c */ BEGIN NOT DEFERRABLE",
    "-- c\nBEGIN; UPDATE t SET v = 11",
    "BEGIN 'x",
)


def test_no_change_is_written_by_itself_after_a_begin_that_was_refused(
    ctx: datafusion.SessionContext,
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10)")
    for begin in REFUSED_BEGINS:
        with pytest.raises(mw.MemWalError):
            mw.sql(ctx, begin)
        for change in ("UPDATE t SET v = 11", "CREATE TABLE x (id bigint PRIMARY KEY)"):
            with pytest.raises(mw.InvalidCallError, match="the last BEGIN was refused"):
                mw.sql(ctx, change)
        with pytest.raises(Exception, match="the last BEGIN was refused"):
            ctx.sql("INSERT INTO t VALUES (2, 10)").collect()
        assert live(ctx) == [(1, 10)], begin
        mw.sql(ctx, "ROLLBACK")
        mw.sql(ctx, "UPDATE t SET v = v")
        with pytest.raises(mw.MemWalError):
            mw.sql(ctx, begin)
        with pytest.raises(mw.InvalidCallError, match="BEGIN was refused"):
            mw.sql(ctx, "COMMIT")
        mw.sql(ctx, "UPDATE t SET v = v")
        with pytest.raises(mw.MemWalError):
            mw.sql(ctx, begin)
        mw.sql(ctx, "BEGIN")  # another one is meant instead
        with pytest.raises(mw.MemWalError):
            mw.sql(ctx, begin)
        mw.sql(ctx, "UPDATE t SET v = 12")
        mw.sql(ctx, "ROLLBACK")
        mw.sql(ctx, "UPDATE t SET v = v")
        assert live(ctx) == [(1, 10)], begin


def test_show_tells_the_level_of_the_open_transaction(ctx: datafusion.SessionContext) -> None:
    show = "SHOW memwal.isolation"
    assert mw.sql(ctx, show).to_pylist()[0]["value"] == "snapshot"
    mw.sql(ctx, "BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert mw.sql(ctx, show).to_pylist()[0]["value"] == "serializable"
    mw.sql(ctx, "ROLLBACK")
    assert mw.sql(ctx, show).to_pylist()[0]["value"] == "snapshot"
