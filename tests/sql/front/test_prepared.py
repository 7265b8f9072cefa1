"""PREPARE, EXECUTE, DEALLOCATE, CALL, and a session whose `sql` is `mw.sql`."""

import math
from datetime import UTC, datetime, timedelta

import datafusion
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32())])


@pytest.fixture
def ctx() -> mw.SessionContext:
    return mw.SessionContext()


@pytest.fixture
def table(uri: str, ctx: mw.SessionContext) -> mw.Table:
    table = mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key="id"))
    with table.writer() as writer:
        writer.upsert(pa.table([range(5), range(5)], schema=SCHEMA))
    return table


def live(ctx: mw.SessionContext) -> dict[int, int]:
    return {row["id"]: row["n"] for row in ctx.sql("SELECT * FROM t").to_pylist()}


def test_prepared_statements_run_with_their_values(table: mw.Table, ctx: mw.SessionContext) -> None:
    ctx.sql("PREPARE change(INT, BIGINT) AS UPDATE t SET n = n + $1 WHERE id = $2")
    assert ctx.sql("EXECUTE change(10, 1 + 1)").to_pylist() == [{"count": 1}]
    assert ctx.sql("execute Change(10, $id);", id=3).to_pylist() == [{"count": 1}]
    assert live(ctx) == {0: 0, 1: 1, 2: 12, 3: 13, 4: 4}
    ctx.sql('PREPARE "Past" AS SELECT n FROM t VERSION AS OF $1 WHERE id = 2')
    table.checkpoint("now")
    ctx.sql("DELETE FROM t")
    assert ctx.sql("EXECUTE \"Past\"('now')").to_pylist() == [{"n": 12}]
    ctx.sql("DEALLOCATE change")
    with pytest.raises(mw.InvalidCallError, match="'change' does not exist"):
        ctx.sql("EXECUTE change(1, 2)")
    ctx.sql("DEALLOCATE ALL")
    with pytest.raises(mw.InvalidCallError, match="does not exist"):
        ctx.sql('DEALLOCATE PREPARE "Past"')
    table.close()


@pytest.mark.parametrize(
    ("prepared", "values"),
    [
        ("INSERT INTO t VALUES ($1, $2)", "5, 50"),
        ("INSERT INTO public.t (id, n) VALUES ($1, $2)", "5, 50"),
        ("WITH w AS (SELECT $1 AS id) INSERT INTO u SELECT * FROM w JOIN t USING (id)", "1"),
        ("UPDATE t AS x SET n = $1 WHERE x.id = 1", "5"),
        ("MERGE INTO t USING (VALUES ($1)) AS s (i) ON t.id = s.i WHEN MATCHED THEN DELETE", "1"),
        ("SELECT * FROM datafusion.public.t WHERE id = $1", "1"),
    ],
)
@pytest.mark.parametrize("changes", ["ADD COLUMN m INT", "DROP COLUMN n, ADD COLUMN n BIGINT"])
def test_a_statement_is_prepared_again_where_columns_of_its_tables_have_changed(
    table: mw.Table, ctx: mw.SessionContext, uri: str, prepared: str, values: str, changes: str
) -> None:
    """Whoever has changed them: the session that sees them by now may have."""
    second = mw.register(ctx, "u", mw.create_table(f"{uri}-u", SCHEMA, primary_key="id"))
    ctx.sql(f"PREPARE one AS {prepared}")
    ctx.sql("PREPARE other AS INSERT INTO u VALUES (1, $1)")
    ctx.sql(f"EXECUTE one({values})").to_pylist()
    for change in changes.split(", "):
        ctx.sql(f"ALTER TABLE t {change}")
    before = table.to_arrow(), second.to_arrow()
    for _ in range(2):
        with pytest.raises(mw.ReopenError, match="columns of 't' have changed since PREPARE one"):
            ctx.sql(f"EXECUTE one({values})").to_pylist()
    assert (table.to_arrow(), second.to_arrow()) == before
    ctx.sql("EXECUTE other(1)")
    ctx.sql("DEALLOCATE one")
    ctx.sql(f"PREPARE one AS SELECT {table.schema.names[-1]} FROM t WHERE id = $1")
    assert ctx.sql("EXECUTE one(3)").schema().names == table.schema.names[-1:]
    second.close()
    table.close()


@pytest.mark.parametrize(
    ("given", "written"),
    [("7", 7), ("7.0", 7), ("'7'", 7), ("CAST(7 AS DECIMAL(9, 2))", 7), ("NULL", None)],
)
def test_a_value_is_cast_to_its_type(
    table: mw.Table, ctx: mw.SessionContext, given: str, written: int | None
) -> None:
    ctx.sql("PREPARE change(INT) AS UPDATE t SET n = $1 WHERE id = 1")
    ctx.sql(f"EXECUTE change({given})")
    assert live(ctx)[1] == written
    table.close()


@pytest.mark.parametrize(
    "setting",
    [
        "dialect = 'snowflake'",
        "dialect = 'mysql'",
        "parse_float_as_decimal = true",
        "enable_ident_normalization = false",
    ],
)
def test_a_statement_is_prepared_again_where_the_session_reads_sql_otherwise(
    table: mw.Table, ctx: mw.SessionContext, setting: str
) -> None:
    before = table.to_arrow()
    ctx.sql(r"PREPARE keep AS DELETE FROM t WHERE 'a\\b' = 'a\b'")
    ctx.sql("PREPARE shown AS SELECT 4.40 FROM T")
    ctx.sql(f"SET datafusion.sql_parser.{setting}")
    for name in ("keep", "shown"):
        with pytest.raises(mw.ReopenError, match="would read it otherwise: DEALLOCATE it"):
            ctx.sql(f"EXECUTE {name}")
    assert table.to_arrow() == before
    ctx.sql("DEALLOCATE shown")
    ctx.sql("PREPARE shown AS SELECT 4.40 FROM t")
    assert len(ctx.sql("EXECUTE shown").to_pylist()) == len(before)


@pytest.mark.parametrize(
    "given", ["1.9", "'1.9'", "CAST(1.25 AS DECIMAL(9, 2))", "now()", "DATE '1970-01-02'", "1e40"]
)
def test_a_value_that_does_not_fit_its_type_is_refused(
    table: mw.Table, ctx: mw.SessionContext, given: str
) -> None:
    ctx.sql("PREPARE change(BIGINT, INT) AS INSERT INTO t VALUES ($1, $2)")
    with pytest.raises(mw.InvalidCallError):
        ctx.sql(f"EXECUTE change({given}, 100)")
    assert live(ctx) == {n: n for n in range(5)}
    table.close()


def test_no_float_becomes_infinite(ctx: mw.SessionContext) -> None:
    ctx.sql("PREPARE size(REAL) AS SELECT $1 AS size")
    for given, size in (("0.5", 0.5), ("'-Inf'", -math.inf), ("'1e30'", np.float32(1e30))):
        assert ctx.sql(f"EXECUTE size({given})").to_pylist() == [{"size": size}]
    for given in ("1e300", "'1e300'", "'1e400'", "CAST(-1e300 AS DOUBLE)"):
        with pytest.raises(mw.InvalidCallError, match=r"is no float|1e\+?300"):
            ctx.sql(f"EXECUTE size({given})")


def test_a_decimal_is_not_rounded(ctx: mw.SessionContext) -> None:
    ctx.sql("PREPARE price(DECIMAL(9, 2)) AS SELECT $1::text AS price")
    for given, price in (("1.1", "1.10"), ("7", "7.00"), ("CAST(2.50 AS DECIMAL(9, 3))", "2.50")):
        assert ctx.sql(f"EXECUTE price({given})").to_pylist() == [{"price": price}]
    for given in ("1.239", "CAST(2.505 AS DECIMAL(9, 3))", "now()"):
        with pytest.raises(mw.InvalidCallError):
            ctx.sql(f"EXECUTE price({given})")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PREPARE", "name of a prepared statement is missing, at line 1, column 8"),
        ("PREPARE x DELETE FROM t", "AS is missing.*'DELETE'"),
        ("PREPARE x AS", "a statement is missing"),
        ("PREPARE known AS SELECT 1", "is prepared: DEALLOCATE known"),
        ("PREPARE a(INT) AS SELECT $1 + $2", r"no type for \$2, of 1, at line 1, column 31"),
        ("PREPARE a(INT, INT) AS UPDATE t SET n = $1 WHERE id = ($3 + 1)", r"no type for \$3"),
        ("PREPARE a AS SELECT $0", r"count from \$1, at line 1, column 21: '\$0'"),
        ("PREPARE a(INT) AS SELECT $00", r"count from \$1"),
        ("PREPARE a AS SELECT ? + $1", r"written as \$1 or \$name, at line 1, column 21: '\?'"),
        ("PREPARE a(INT, NOPE) AS SELECT $1", "Unsupported SQL type NOPE"),
        ("PREPARE a(INT INT) AS SELECT $1", r"column 15: 'INT'"),
        ("PREPARE a(INT,) AS SELECT $1", "nothing between two commas|NOPE"),
        ("PREPARE a AS EXECUTE a", "can stand here: write it out, at line 1, column 14"),
        ("PREPARE a AS PREPARE b AS SELECT 1", "can stand here: write it out"),
        ("EXECUTE known", "takes 1 values, and 0 are given"),
        ("EXECUTE known('x')", "x"),
        ("EXECUTE untyped(1, 2)", "untyped takes 1 values, and 2 are given"),
        ("EXECUTE untyped", "untyped takes 1 values, and 0 are given"),
        ("EXECUTE named(5)", r"0 values, and 1 are given; \$id is given by name: .*id=\.\.\."),
        ("EXECUTE known(1", "does not end"),
        ("EXECUTE known(1) 2", "values in parentheses must follow"),
        ("EXECUTE unknown(1)", "unknown"),
        ("CALL memwal.nope('t')", "no such procedure; there are.*'merge'"),
        ("CALL memwal.merge", "arguments in parentheses"),
        ("CALL memwal.merge()", "name in quotes"),
        ("CALL memwal.merge(t)", "t"),
        ("CALL memwal.merge('other')", "no MemWAL table"),
        ("CALL memwal.merge('t', nope => 1)", r"merge takes \(table, regions\): .*nope"),
        ("CALL memwal.merge('t', progress => 1)", r"merge takes \(table, regions\): .*progress"),
        ("CALL memwal.merge('t', ['a'], 1)", r"merge takes \(table, regions\): too many"),
        ("CALL memwal.check('t', 1)", r"check takes \(table\): too many"),
        ("CALL memwal.checkpoint('t')", r"takes \(table, name, expires\): missing .*'name'"),
        ("CALL memwal.collect_garbage('t', true)", r"takes \(table, dry_run, older_than, vers"),
        ("CALL memwal.build_indexes('t', ['a', 'b'])", r"'a'"),
        ("CALL memwal.merge('t', regions => 'a', 1)", "without a name"),
        ("CALL memwal.merge('t', regions => 'a', regions => 'b')", "given twice"),
        ("CALL memwal.merge('t', regions => )", "value of this argument is missing"),
        ("CALL memwal.collect_garbage('t', older_than => INTERVAL '1 month')", "has no length"),
        ("CALL somebody.else(1)", "CALL"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_refused(
    table: mw.Table, ctx: mw.SessionContext, statement: str, message: str
) -> None:
    ctx.sql("PREPARE known(INT) AS SELECT $1")
    ctx.sql("PREPARE untyped AS SELECT $1 + $1 AS n")
    ctx.sql("PREPARE named AS UPDATE t SET n = 0 WHERE id = $id")
    with pytest.raises(mw.InvalidCallError, match=message):
        ctx.sql(statement)
    table.close()


def test_a_statement_that_was_refused_is_not_kept(ctx: mw.SessionContext) -> None:
    for text in ("PREPARE a(INT) AS SELECT $2", "PREPARE a(NOPE) AS SELECT 1"):
        with pytest.raises(mw.InvalidCallError):
            ctx.sql(text)
    ctx.sql("PREPARE a(INT, BIGINT) AS SELECT $2 AS n, $name AS b")
    assert ctx.sql("EXECUTE a(1, 2)", name="x").to_pylist() == [{"n": 2, "b": "x"}]


def test_jobs_are_called_by_statements(table: mw.Table, ctx: mw.SessionContext) -> None:
    ctx.sql("UPDATE t SET n = 7 WHERE id = 0")  # opens the session's writer
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]
    assert ctx.sql("CALL memwal.merge('t', regions => ['unsharded=0'])").to_pylist() == [
        {"generations": 1}
    ]
    assert ctx.sql("CALL memwal.build_indexes('public.t')").to_pylist() == [{"index": "id_idx"}]
    ctx.sql("DELETE FROM t WHERE id = 4")
    ctx.sql("CALL memwal.flush('t')")
    ctx.sql("CALL memwal.merge('t')")
    for options, count in (("deleted => 0.5", 0), ("dry_run => true", 1), ("", 1), ("", 0)):
        call = f"CALL memwal.compact('t'{options and ', ' + options})"
        assert ctx.sql(call).to_pylist() == [{"fragments": count}]
    assert ctx.sql("CALL memwal.snapshot_regions('t')").to_pylist() == [
        {"version": mw.open_table(table.uri).version}
    ]
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    ctx.sql("CALL memwal.checkpoint('t', 'one', expires => $until)", until=until)
    ctx.sql("CALL memwal.checkpoint('t', name => 'two', expires => INTERVAL '90 minutes')")
    rows = ctx.sql("CALL memwal.checkpoints('t')").to_pylist()
    assert [row["name"] for row in rows] == ["one", "two"]
    assert rows[0]["expires"] == until
    assert timedelta(minutes=80) < rows[1]["expires"] - datetime.now(UTC) < timedelta(minutes=91)
    ctx.sql("CALL memwal.drop_checkpoint('t', 'one')")
    call = "CALL memwal.collect_garbage('t', dry_run => true, older_than => INTERVAL '0 seconds')"
    found = ctx.sql(call)
    assert found.schema().names[0] == "kind"
    assert ctx.sql("CALL memwal.check('t')").to_pylist() == table.check().to_arrow().to_pylist()
    assert live(ctx) == {0: 7, 1: 1, 2: 2, 3: 3}
    table.close()


def test_a_flush_flushes_whatever_is_not_flushed(table: mw.Table, ctx: mw.SessionContext) -> None:
    flushed = "SELECT num_rows FROM \"t$generations\" WHERE state = 'flushed' ORDER BY generation"
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 1}]  # a closed writer's
    assert ctx.sql(flushed).to_pylist() == [{"num_rows": 5}]
    ctx.sql("INSERT INTO t VALUES (0, 9)")
    with table.writer():  # which has claimed nothing
        assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]
    assert ctx.sql(flushed).to_pylist() == [{"num_rows": 5}, {"num_rows": 1}]
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]
    table.close()


def test_a_session_of_ours_leaves_other_statements_to_datafusion(ctx: mw.SessionContext) -> None:
    assert ctx.sql("SELECT $1 + $b AS c", param_values={"1": 1}, b=2).to_pylist() == [{"c": 3}]
    ctx.sql("CREATE VIEW v AS SELECT 1 AS a")
    assert ctx.sql("SHOW TABLES").to_pylist()
    assert ctx.sql("SELECT * FROM v").to_pylist() == [{"a": 1}]
    with pytest.raises(mw.UnsupportedError, match="TABLESAMPLE"):
        ctx.sql("CREATE VIEW w AS SELECT * FROM v TABLESAMPLE (10)")


@pytest.mark.parametrize(
    "text", ["SELEC 1", "SELECT (1", "SELECT 1 + )", "DELETE FROM t WHERE (", "EXPLAIN", "SET", ""]
)
def test_a_session_of_ours_has_the_same_errors(
    table: mw.Table, ctx: mw.SessionContext, text: str
) -> None:
    plain = datafusion.SessionContext()
    mw.register(plain, "t", table)
    messages = []
    for session in (plain, ctx):
        with pytest.raises(mw.InvalidCallError) as caught:
            mw.sql(session, text)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    table.close()
