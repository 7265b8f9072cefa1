"""What SQL of other systems means in each dialect of DataFusion: that, or an error."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_native import SqlParser
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.session.clauses import check_clauses
from tests.cli.calls import call, failing

DIALECTS = (
    *("Generic", "MySQL", "PostgreSQL", "Hive", "SQLite", "Snowflake", "Redshift"),
    *("MsSQL", "ClickHouse", "BigQuery", "ANSI", "DuckDB", "Databricks", "Spark"),
)
# DataFusion reads a state of the past in these and leaves it out; docs/limits.md says so.
LEAVE_OUT_STATES = {"Snowflake", "MsSQL", "BigQuery", "Databricks"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "s": pa.string()})
    table = mw.create_table(tmp_path_factory.mktemp("dialects") / "t", schema, "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": None, "s": "a"}, {"id": 2, "n": 5, "s": "b"}])
        writer.flush()
        writer.upsert([{"id": 3, "n": 5, "s": "a"}])
    return table


def session_of(dialect: str) -> datafusion.SessionContext:
    config = datafusion.SessionConfig().set("datafusion.sql_parser.dialect", dialect)
    return datafusion.SessionContext(config)


def answer(table: mw.Table, dialect: str, query: str) -> list[Any] | None:
    """The rows, or None for an error."""
    context = session_of(dialect)
    mw.register(context, "t", table)
    try:
        return [next(iter(row.values())) for row in context.sql(query).to_pylist()]
    except Exception:  # DataFusion raises nothing more specific
        return None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ("SELECT count(*) FROM t WHERE n <=> 5", [[2]]),
        ("SELECT count(*) FROM t WHERE n <=> NULL", [[1]]),
        ("SELECT count(*) FROM t WHERE n <=> n", [[3]]),
        ("SELECT count(*) FROM t WHERE s == 'a'", [[2]]),
        ("SELECT count(*) FROM t WHERE s || 'x' = 'ax'", [[2]]),
        ("SELECT count(*) FROM t WHERE s ~ 'a|b'", [[3]]),
        ("SELECT count(*) FROM t WHERE s RLIKE 'a'", [[2], None]),
        ("SELECT count(*) FROM t WHERE s REGEXP 'a'", [[2], None]),
        ("SELECT count(*) FROM t WHERE NOT n = 5", [[0]]),
        ("SELECT count(*) FROM t WHERE n != 5", [[0]]),
        ("SELECT count(*) FROM t WHERE !(n = 5)", [[0], None]),
        ("SELECT count(*) FROM t WHERE n DIV 2 = 2", [[2], None]),
        ("SELECT count(*) FROM t WHERE s = \"a\"", [[2], None]),  # a text here, a column there
        ("SELECT TOP 1 id FROM t ORDER BY id", [[1], None]),
    ],
)  # fmt: skip
def test_operators_mean_the_same_or_are_refused(
    table: mw.Table, dialect: str, query: str, answers: list[list[Any] | None]
) -> None:
    assert answer(table, dialect, query) in answers


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "clause",
    [
        "VERSION AS OF 1",
        "FOR VERSION AS OF 1",
        "TIMESTAMP AS OF '2020-01-01'",
        "FOR SYSTEM_TIME AS OF '2020-01-01'",
        "AT(TIMESTAMP => '2020-01-01')",
        "BEFORE(TIMESTAMP => '2020-01-01')",
    ],
)
def test_states_of_the_past_are_refused_where_datafusion_sees_to_it(
    table: mw.Table, dialect: str, clause: str
) -> None:
    found = answer(table, dialect, f"SELECT count(*) FROM t {clause}")
    assert found is None or (dialect in LEAVE_OUT_STATES and found == [3])


# Each is read otherwise, or not at all, in some dialects.
OF_DIALECTS = [
    "SELECT a.id # b.id FROM t AS a JOIN t AS b ON a.id = b.id",
    "SELECT a.id + 1_000 FROM t AS a JOIN t AS b ON a.id = b.id",
    "SELECT 5--1\n FROM t AS a JOIN t AS b ON a.id = b.id",
    "# of t\nSELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id",
    "SELECT a.id // FROM t\n FROM t AS a JOIN t AS b ON a.id = b.id",
    "SELECT a.id FROM t AS a JOIN t AS b ON a.id = b.id WHERE a.s IN ('it\\'s', 'a')",
    "SELECT a.id FROM `t` AS a JOIN `t` AS b ON a.id = b.id",
    "SELECT a.id FROM [t] AS a JOIN [t] AS b ON a.id = b.id",
    'SELECT a."id" FROM "t" AS a JOIN t AS b ON a.id = b.id',
    "SELECT a.ID FROM T AS a JOIN T AS b ON a.ID = b.ID",
    "SELECT $$it's$$, a.id FROM t AS a JOIN t AS b ON a.id = b.id",
    "FROM t AS a JOIN t AS b ON a.id = b.id SELECT a.id",
    "SELECT /* /* */ id */ a.id FROM t AS a JOIN t AS b ON a.id = b.id",
]


def both_answers(table: mw.Table, query: str, **settings: str) -> list[pa.Table | None]:
    """Those of DataFusion over rows in memory, and of statements over the table; None for errors.

    `settings` are of the parser.
    """
    config = datafusion.SessionConfig()
    for name, value in settings.items():
        config = config.set(f"datafusion.sql_parser.{name}", value)
    plain, ours = datafusion.SessionContext(config), datafusion.SessionContext(config)
    plain.register_batch("t", table.to_arrow().combine_chunks().to_batches()[0])
    mw.register(ours, "t", table)
    found: list[pa.Table | None] = []
    for answers in (partial(plain.sql, query), partial(mw.sql, ours, query)):
        try:
            found.append(answers().to_arrow_table())
        except Exception:  # DataFusion raises nothing more specific
            found.append(None)
    return [one if one is None else one.sort_by(one.column_names[-1]) for one in found]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("query", OF_DIALECTS)
def test_statements_are_read_in_the_dialect_of_the_session(
    table: mw.Table, dialect: str, query: str
) -> None:
    plain, ours = both_answers(table, query, dialect=dialect)
    assert ours == plain


def test_each_of_them_is_read_in_some_dialect(table: mw.Table) -> None:
    for query in OF_DIALECTS:
        answers = [both_answers(table, query, dialect=dialect)[0] for dialect in DIALECTS]
        assert any(one is not None for one in answers), query


@pytest.mark.parametrize("dialect", ["Snowflake", "ClickHouse", "PostgreSQL"])
def test_changes_are_read_in_the_dialect_of_the_session(uri: str, dialect: str) -> None:
    """A text ends, and a comment begins, where the session says."""
    ctx = session_of(dialect)
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    with mw.create_table(uri, schema, primary_key="id") as table:
        mw.register(ctx, "t", table)
        mw.sql(ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        try:
            expected = ctx.sql("SELECT 'it\\'s RETURNING' AS s").to_pylist()[0]["s"]
        except Exception:  # DataFusion raises nothing more specific
            with pytest.raises(mw.InvalidCallError):
                mw.sql(ctx, "UPDATE t SET s = 'it\\'s RETURNING' WHERE id = 1")
        else:
            mw.sql(ctx, "UPDATE t SET s = 'it\\'s RETURNING' WHERE id = 1")
            assert table.get([1])["s"].to_pylist() == [expected]
        if dialect == "Snowflake":
            mw.sql(ctx, "DELETE FROM t // WHERE id = 5")
            assert table.to_arrow().num_rows == 0
        else:
            with pytest.raises(mw.InvalidCallError):
                mw.sql(ctx, "DELETE FROM t // WHERE id = 5")
            assert table.to_arrow().num_rows == 2


@pytest.mark.parametrize("dialect", DIALECTS)
@given(text=st.text(st.sampled_from("\\'\"`$%_n/*-#\n é")))
@example("\\') UNION ALL SELECT 1 --")
@example("")
def test_a_text_is_written_as_the_dialect_reads_it(dialect: str, text: str) -> None:
    parser = SqlParser(session_of(dialect))
    literal = parser.literal(text)
    assert parser.tokens(literal) == [("string", text, 0, len(literal))]
    assert mw.sql(session_of(dialect), f"SELECT {literal} AS x").to_pydict() == {"x": [text]}


HOSTILE = ["\\') UNION ALL SELECT x, 0 FROM secret --", "' word1 \\", "C:\\new\\"]
NO_PARAMETERS = {"MySQL", "Hive"}
NO_NAMED_ARGUMENTS = {"MsSQL"}
COMMENTS = {"MySQL", "Hive", "Snowflake", "BigQuery"}  # at a #
NO_CHANGES = {"MySQL", "BigQuery", "Databricks", "Spark"}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mw.Table]:
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "v": pa.list_(pa.float32(), 2)})
    uri = tmp_path_factory.mktemp("searched") / "t"
    rows = [{"id": i, "s": f"word{i} text", "v": [i, 3 - i]} for i in range(4)]
    with mw.create_table(uri, schema, "id") as table, table.writer() as writer:
        writer.upsert(rows)
        yield table


@pytest.mark.parametrize("dialect", DIALECTS)
def test_searches_take_parameters_in_every_dialect(searched: mw.Table, dialect: str) -> None:
    ctx = session_of(dialect)
    mw.register(ctx, "t", searched)
    ctx.register_record_batches("secret", [pa.table({"x": ["SECRET"]}).to_batches()])
    vector = [2.0, 1.1]
    found: list[tuple[str, list[Any], set[str], list[int]]] = [
        ("SELECT id FROM t ORDER BY v <-> $q LIMIT 1", [vector, "[2, 1.1]"], set(), [2]),
        ("SELECT id FROM t ORDER BY v <=> $q LIMIT 1", [vector], set(), [2]),
        ("SELECT id FROM t ORDER BY v <#> $q LIMIT 1", [vector], COMMENTS, [3]),
        ("SELECT id FROM vector_search('t', 'v', $q, 1)", [vector], set(), [2]),
        ("SELECT id FROM vector_search('t', 'v', $q, k => 1)", [vector], NO_NAMED_ARGUMENTS, [2]),
        ("SELECT s FROM full_text_search('t', 's', $q)", HOSTILE[:1], set(), []),
        ("SELECT id FROM full_text_search('t', 's', $q)", HOSTILE[1:2], set(), [1]),
        ("SELECT id FROM full_text_search('t', 's', $q)", HOSTILE[2:], set(), []),
    ]
    for text, values, but, expected in found:
        for value in values:
            if dialect in but | NO_PARAMETERS:
                with pytest.raises(mw.InvalidCallError):
                    mw.sql(ctx, text, q=value)
            else:
                answer = mw.sql(ctx, text, q=value).to_pylist()
                assert [next(iter(row.values())) for row in answer] == expected, text


@pytest.mark.parametrize("dialect", sorted({*DIALECTS} - NO_CHANGES))
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM t",
        "TRUNCATE t",
        "UPDATE t SET s = 'x'",
        "UPDATE t SET s = 'x' FROM (SELECT 1 AS one) AS o",
        "MERGE INTO t USING (SELECT 7 AS id) AS o ON t.id = o.id "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
        "MERGE INTO t USING (SELECT id FROM t) AS o ON t.id = o.id "
        "WHEN MATCHED THEN UPDATE SET s = 'x'",
    ],
)
def test_changes_without_a_condition_are_of_all_rows(
    fast_folder: Path, dialect: str, statement: str
) -> None:
    """Also of rows with a column that is called like a constant of other dialects."""
    schema = pa.schema({"id": pa.int64(), "true": pa.bool_(), "s": pa.string()})
    with mw.create_table(str(fast_folder / "t"), schema, "id") as table:
        ctx = session_of(dialect)
        mw.register(ctx, "t", table)
        with table.writer() as writer:
            writer.upsert([{"id": i, "true": one} for i, one in enumerate([True, False, None])])
        assert mw.sql(ctx, statement).to_pylist()[0]["count"] == 3
        left = table.to_arrow()["s"].to_pylist()
        assert left == (["x"] * 3 if "SET" in statement else [])


@pytest.mark.parametrize("dialect", ["Generic", "Snowflake", "ClickHouse"])
def test_files_with_backslashes_in_their_names_are_read(fast_folder: Path, dialect: str) -> None:
    (fast_folder / "a\\new.csv").write_text("id,n\n1,2\n")
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    with mw.create_table(str(fast_folder / "t"), schema, "id") as table:
        ctx = session_of(dialect)
        mw.register(ctx, "t", table)
        mw.sql(ctx, "COPY t FROM $p STORED AS csv", p=str(fast_folder / "a\\new.csv"))
        assert table.to_arrow().to_pylist() == [{"id": 1, "n": 2}]


@pytest.mark.parametrize("dialect", ["Generic", "Snowflake", "MySQL"])
def test_places_are_told_whatever_the_dialect(table: mw.Table, dialect: str) -> None:
    ctx = session_of(dialect)
    mw.register(ctx, "t", table)
    quote = "''" if dialect == "Generic" else "\\'"
    with pytest.raises(mw.InvalidCallError, match=r"line 1, column 17: 'zork'"):
        mw.sql(ctx, f"SELECT 'it{quote}s', zork FROM t WHERE 1 = 1 LIMIT 3")


def test_names_are_those_of_the_session(table: mw.Table, uri: str) -> None:
    """Where they are taken as they are written, T and t are two tables."""
    config = datafusion.SessionConfig()
    ctx = datafusion.SessionContext(
        config.set("datafusion.sql_parser.enable_ident_normalization", "false")
    )
    schema = pa.schema({"id": pa.int64()})
    with mw.create_table(uri, schema, primary_key="id") as other, other.writer() as writer:
        writer.upsert([{"id": 7}])
        mw.register(ctx, '"T"', table)
        mw.register(ctx, "t", other)
        text = "SELECT a.id FROM {0} AS a JOIN {0} AS b ON a.id = b.id ORDER BY a.id"
        for name, expected in (("T", [1, 2, 3]), ("t", [7])):
            found = mw.sql(ctx, text.format(name)).to_pydict()
            assert found == {"id": expected}


LEFT_OUT = [
    "TABLESAMPLE (1 PERCENT)",
    "SAMPLE 0.1",
    "PREWHERE n = 5",
    "FOR UPDATE",
    "WITH (NOLOCK)",
    "PARTITION (p0)",
    "START WITH id = 1 CONNECT BY PRIOR id = n",
    "GROUP BY id, n, s WITH ROLLUP",
    "GROUP BY id, n, s WITH CUBE",
    "GROUP BY id, n, s WITH TOTALS",
    "GROUP BY ALL WITH ROLLUP",
    "GROUP BY id, n, s GROUPING SETS ((id), ())",
    "CROSS JOIN LATERAL generate_series(1, 3) WITH ORDINALITY",
    "|> AGGREGATE count(*) AS c GROUP BY s DESC",
    "|> SELECT * ILIKE '%s%'",
]
QUERIES = [f"SELECT * FROM t {clause}" for clause in LEFT_OUT]
QUERIES += [
    "SELECT sum(2)(id) FROM t",
    "SELECT value FROM generate_series(1, 3, SETTINGS a = 1)",
]
QUERIES += ["SELECT * ILIKE '%s%' FROM t", "SELECT 1 AS one, t.* ILIKE '%s%' FROM t"]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    "statement",
    [
        "{}",
        "EXPLAIN {}",
        "SELECT * FROM ({}) AS x",
        "WITH a AS ({}) SELECT * FROM a",
        "INSERT INTO t {}",
        "COPY ({}) TO 'x.csv'",
    ],
)
def test_what_datafusion_would_leave_out_is_refused_in_sessions_of_our_own(
    table: mw.Table, query: str, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    statement = statement.format(query)
    with pytest.raises(mw.UnsupportedError, match="leave it out"):
        check_clauses(SqlParser().statements(statement))
    assert "as if [" in failing("sql", table.uri, statement, code=ExitCode.CALL)
    assert len(table.scan().read_all()) == 3 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("query", QUERIES)
def test_datafusion_does_leave_it_out(table: mw.Table, query: str) -> None:
    """Else it need not be refused."""
    assert answer(table, "Generic", query) is not None


PIPES = {"Generic", "BigQuery"}
WITH_MODIFIERS = {"Generic", "Hive", "ClickHouse", "Databricks", "Spark"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("query", "parsing", "left_out"),
    [
        ("SELECT s FROM t GROUP BY s WITH ROLLUP ORDER BY s", WITH_MODIFIERS, ["a", "b"]),
        ("SELECT s FROM t GROUP BY s WITH CUBE ORDER BY s", WITH_MODIFIERS, ["a", "b"]),
        ("SELECT s FROM t GROUP BY s WITH TOTALS ORDER BY s", WITH_MODIFIERS, ["a", "b"]),
        ("SELECT s FROM t GROUP BY s GROUPING SETS ((s), ()) ORDER BY s", DIALECTS, ["a", "b"]),
        ("SELECT * ILIKE '%s%' FROM t ORDER BY id", {"Generic", "Snowflake"}, [1, 2, 3]),
        ("SELECT * FROM t |> AGGREGATE max(n) GROUP BY s DESC |> WHERE s < 'b'", PIPES, ["a"]),
    ],
)
def test_what_is_left_out_elsewhere_is_in_the_readme(
    table: mw.Table, dialect: str, query: str, parsing: Collection[str], left_out: list[Any]
) -> None:
    """In the dialects that parse it; the others refuse it."""
    assert answer(table, dialect, query) == (left_out if dialect in parsing else None)


def test_other_clauses_are_not(table: mw.Table) -> None:
    for query in (
        "SELECT * EXCLUDE (n) FROM t FINAL",
        "SELECT DISTINCT ON (s) s FROM t ORDER BY s LIMIT 3",
        "SELECT t.* EXCEPT (n, s), s FROM t",
        "SELECT * REPLACE (n + 1 AS n) FROM t WHERE s ILIKE '%A%'",
        "SELECT s, count(*) FROM t GROUP BY ROLLUP (s)",
        "SELECT * FROM t |> AGGREGATE count(*) AS c GROUP BY s |> ORDER BY s",
        "WITH a AS (SELECT * FROM t) SELECT * FROM a AS sample",
        "SELECT 'TABLESAMPLE (1 PERCENT)' AS x -- FOR UPDATE",
        "SELECT sum(id) FILTER (WHERE id > 1) OVER (PARTITION BY s) FROM t",
    ):
        check_clauses(SqlParser().statements(query))
        assert call("sql", table.uri, query)


MISREAD = [
    "n IS DISTINCT FROM 5 AND id < 2",
    "n IS NOT DISTINCT FROM 5 OR id < 2",
    "(n IS DISTINCT FROM id OR s = 'a') AND NOT n IS NOT DISTINCT FROM id AND true",
    "CASE WHEN id IS DISTINCT FROM n AND s = 'a' THEN true END",
]


@pytest.mark.parametrize("condition", MISREAD)
def test_comparisons_that_are_read_otherwise_are_refused(table: mw.Table, condition: str) -> None:
    """DataFusion compares with all of `b AND c` in `a IS DISTINCT FROM b AND c`."""
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    before = table.to_arrow()
    calls = [
        *(
            partial(mw.sql, ctx, text)
            for text in (
                f"SELECT * FROM t WHERE {condition}",
                f"EXPLAIN SELECT id FROM t JOIN (SELECT 1) ON {condition}",
                f"DELETE FROM t WHERE {condition}",
                f"UPDATE t SET n = 0 WHERE {condition}",
                f"INSERT INTO t SELECT * FROM t WHERE {condition}",
                "MERGE INTO t USING (SELECT 1 AS other) AS q ON t.id = q.other "
                f"WHEN MATCHED AND {condition} THEN DELETE",
            )
        ),
        partial(table.to_arrow, filter=condition),
    ]
    with table.writer() as writer:
        calls.append(partial(writer.update, {"n": "0"}, where=condition))
        calls.append(partial(writer.delete_where, condition))
        calls.append(partial(writer.update, {"n": f"CASE WHEN {condition} THEN 1 END"}))
        for one in calls:
            with pytest.raises(mw.UnsupportedError, match="into parentheses"):
                one()
    assert table.to_arrow() == before


def test_comparisons_in_parentheses_are_those_of_sql(table: mw.Table) -> None:
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    text = "SELECT id FROM t WHERE (n IS DISTINCT FROM 5) AND id < 2 OR id IS NOT DISTINCT FROM 3"
    assert {row["id"] for row in mw.sql(ctx, text).to_pylist()} == {1, 3}
    assert table.to_arrow(["id"], filter="(n IS DISTINCT FROM 5) AND id < 3")["id"].to_pylist() == [
        1
    ]
