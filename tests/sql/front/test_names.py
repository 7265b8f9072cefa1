"""Names in statements: those that the session takes."""

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema({"id": pa.int64(), "äb": pa.int64(), "Äb": pa.int64(), "n": pa.int64()})


@pytest.fixture
def table(uri: str) -> mw.Table:
    return mw.create_table(uri, SCHEMA, primary_key="id")


def test_letters_of_ascii_alone_are_in_lower_case(table: mw.Table) -> None:
    ctx = datafusion.SessionContext()
    mw.register(ctx, "TÄ", table)
    mw.sql(ctx, "INSERT INTO tÄ (id, ÄB, N) VALUES (1, 2, 3)")
    mw.sql(ctx, "UPDATE tÄ SET ÄB = ÄB + 1")
    assert ctx.sql("SELECT ÄB FROM TÄ").to_pydict() == {"Äb": [3]}
    table.add_columns({"twice": "2 * ÄB"})
    assert table.to_arrow().to_pylist() == [{"id": 1, "äb": None, "Äb": 3, "n": 3, "twice": 6}]
    table.close()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("enable_ident_normalization", "false"),
        ("dialect", "mysql"),
        ("dialect", "bigquery"),
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET N = 1",
        "INSERT INTO t (id, N) VALUES (1, 2)",
        "DELETE FROM t",
        "MERGE INTO t USING t AS u ON t.id = u.id WHEN MATCHED THEN DELETE",
        "ALTER TABLE t DROP COLUMN N",
        "DROP TABLE t",
        "CREATE TABLE u (N BIGINT PRIMARY KEY) LOCATION 'u'",
    ],
)
def test_a_session_that_takes_names_otherwise_changes_nothing(
    table: mw.Table, setting: str, value: str, statement: str
) -> None:
    config = datafusion.SessionConfig().set(f"datafusion.sql_parser.{setting}", value)
    ctx = datafusion.SessionContext(config)
    mw.register(ctx, "t", table)
    with pytest.raises(mw.UnsupportedError, match="enable_ident_normalization"):
        mw.sql(ctx, statement)
    table.close()
