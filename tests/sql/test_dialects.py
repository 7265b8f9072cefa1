"""Sessions in another dialect of SQL."""

from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_native.syntax import SqlParser
from memwal_sql.arguments import literal

OTHERS = (
    *("MySQL", "PostgreSQL", "Hive", "SQLite", "Snowflake", "Redshift", "MsSQL", "ClickHouse"),
    *("BigQuery", "ANSI", "DuckDB", "Databricks", "Spark"),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "s": pa.string()})
    table = mw.create_table(tmp_path_factory.mktemp("dialects") / "t", schema, "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": None, "s": "a"}, {"id": 2, "n": 5, "s": "b"}])
        writer.flush()
        writer.upsert([{"id": 3, "n": 5, "s": "a"}])
    return table


def test_a_session_in_another_dialect_is_refused(table: mw.Table) -> None:
    for dialect in OTHERS:
        config = datafusion.SessionConfig().set("datafusion.sql_parser.dialect", dialect)
        ctx = datafusion.SessionContext(config)
        mw.register(ctx, "t", table)
        for text in ("SELECT 1", "DELETE FROM t", "EXPLAIN SELECT 'it\\'s'", "SHOW TABLES"):
            with pytest.raises(mw.UnsupportedError, match=f"to 'generic'.*{dialect.lower()}"):
                mw.sql(ctx, text)
        ctx.sql("RESET datafusion.sql_parser.dialect").collect()
        assert mw.sql(ctx, "SELECT count(*) AS n FROM t").to_pydict() == {"n": [3]}


def test_no_statement_sets_another_dialect(table: mw.Table) -> None:
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    with pytest.raises(mw.UnsupportedError, match="default dialect"):
        ctx.sql("SET datafusion.sql_parser.dialect = 'postgresql'")
    assert ctx.sql("SELECT count(*) AS n FROM t").to_pydict() == {"n": [3]}


@given(text=st.text(st.sampled_from("\\'\"`$%_n/*-#\n é")))
@example("\\') UNION ALL SELECT 1 --")
@example("")
def test_a_text_is_written_as_it_is_read(text: str) -> None:
    written = literal(text)
    assert SqlParser.tokens(written) == [("string", text, 0, len(written))]
