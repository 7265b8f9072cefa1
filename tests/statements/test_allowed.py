"""What `mw.sql` runs: queries, changes of MemWAL tables, and what its options allow."""

from __future__ import annotations

from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw


@pytest.fixture
def context(tmp_path: Path) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    table = mw.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]), "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2]})
    mw.register(context, "t", table)
    context.sql("CREATE TABLE m AS VALUES (1), (2)")
    return context


CHANGES = (
    "INSERT INTO t VALUES (7)",
    "DELETE FROM t",
    "UPDATE t SET id = 7 WHERE id = 1",
    "WITH x AS (SELECT 7) INSERT INTO t SELECT * FROM x",
)


def test_explain_analyze_runs_queries(context: datafusion.SessionContext) -> None:
    for text in ("EXPLAIN ANALYZE SELECT * FROM t", "EXPLAIN DELETE FROM t", "EXPLAIN FROM m"):
        assert mw.sql(context, text).to_pylist(), text


def test_options_allow_kinds_of_statements(
    context: datafusion.SessionContext, tmp_path: Path
) -> None:
    kinds = {
        "dml": (*CHANGES, f"COPY (SELECT 1 AS a) TO '{tmp_path / 'a.csv'}'"),
        "ddl": ("CREATE VIEW v AS SELECT 1", "DROP VIEW v", "ALTER TABLE t ADD COLUMN c INT"),
        "statements": (
            "SET memwal.isolation = 'snapshot'",
            "RESET memwal.isolation",
            "CALL memwal.flush('t')",
            "PREPARE p AS SELECT 1",
            "EXECUTE p",
            "DEALLOCATE p",
            "SET datafusion.execution.batch_size = 100",
        ),
    }
    queries = ("SELECT count(*) FROM t", "VALUES (1)", "FROM t", "EXPLAIN SELECT 1", "SHOW TABLES")
    session = mw.SessionContext(datafusion.SessionConfig().with_information_schema(True))
    table = mw.open_table(tmp_path / "t")
    mw.register(session, "t", table)
    for kind in kinds:
        only = datafusion.SQLOptions()
        for other in kinds:
            only = getattr(only, f"with_allow_{other}")(other == kind)
        for text in queries:
            assert session.sql(text, options=only).to_pylist(), text
            assert session.sql_with_options(text, only).to_pylist(), text
        for other, texts in kinds.items():
            for text in texts if other != kind else ():
                with pytest.raises(mw.UnsupportedError):
                    mw.sql(session, text, options=only)
    for text in (*kinds["dml"], *kinds["ddl"], *kinds["statements"]):
        mw.sql(session, text, options=datafusion.SQLOptions())
