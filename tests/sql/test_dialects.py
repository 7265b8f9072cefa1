"""What SQL of other systems means in each dialect of DataFusion: that, or an error."""

from __future__ import annotations

from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.sql.clauses import check_clauses
from tests.cli.calls import call, failing

DIALECTS = (
    *("Generic", "MySQL", "PostgreSQL", "Hive", "SQLite", "Snowflake", "Redshift"),
    *("MsSQL", "ClickHouse", "BigQuery", "ANSI", "DuckDB", "Databricks", "Spark"),
)
# DataFusion reads a state of the past in these and leaves it out; README says so.
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


def answer(table: mw.Table, dialect: str, query: str) -> list[Any] | None:
    """The rows, or None for an error."""
    options = datafusion.SessionConfig().set("datafusion.sql_parser.dialect", dialect)
    context = datafusion.SessionContext(options)
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


LEFT_OUT = [
    "TABLESAMPLE (1 PERCENT)",
    "SAMPLE 0.1",
    "PREWHERE n = 5",
    "FOR UPDATE",
    "WITH (NOLOCK)",
    "PARTITION (p0)",
    "START WITH id = 1 CONNECT BY PRIOR id = n",
]


@pytest.mark.parametrize("clause", LEFT_OUT)
@pytest.mark.parametrize(
    "statement", ["{}", "EXPLAIN {}", "SELECT * FROM ({}) AS x", "INSERT INTO t {}"]
)
def test_what_datafusion_would_leave_out_is_refused_in_sessions_of_our_own(
    table: mw.Table, clause: str, statement: str
) -> None:
    query = statement.format(f"SELECT * FROM t {clause}")
    with pytest.raises(mw.UnsupportedError, match=clause.split(maxsplit=1)[0]):
        check_clauses(query)
    assert clause.split(maxsplit=1)[0] in failing("sql", table.uri, query, code=ExitCode.CALL)
    assert len(table.scan().read_all()) == 3


def test_other_clauses_are_not(table: mw.Table) -> None:
    for query in (
        "SELECT * EXCLUDE (n) FROM t FINAL",
        "SELECT DISTINCT ON (s) s FROM t ORDER BY s LIMIT 3",
        "WITH a AS (SELECT * FROM t) SELECT * FROM a AS sample",
        "SELECT 'TABLESAMPLE (1 PERCENT)' AS x -- FOR UPDATE",
        "SELECT sum(id) FILTER (WHERE id > 1) OVER (PARTITION BY s) FROM t",
    ):
        check_clauses(query)
        assert call("sql", table.uri, query)
