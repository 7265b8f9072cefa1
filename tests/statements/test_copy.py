"""COPY TO, and the way back: INSERT from an external table of the files."""

from collections.abc import Iterator
from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.statements.beside_duckdb import SCHEMA, live


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"], regions="bucket(id, 2)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 7, 5, 'old'), ('007', 8, 6, NULL)")
    yield table
    table.close()


def test_rows_go_to_files_and_come_back(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    before = live(table)
    for kind in ("csv", "parquet", "json", "arrow"):
        place = tmp_path / f"rows.{kind}"
        assert mw.sql(ctx, f"COPY t TO '{place}'").to_pylist() == [{"count": 2}]
        mw.sql(ctx, "UPDATE t SET n = 0")
        columns = '(tenant TEXT, id BIGINT, n BIGINT, "Name" TEXT)' if kind == "csv" else ""
        mw.sql(ctx, f"CREATE EXTERNAL TABLE {kind} {columns} STORED AS {kind} LOCATION '{place}'")
        insert = f"INSERT INTO t BY NAME SELECT * FROM {kind}"
        assert mw.sql(ctx, insert).to_pylist() == [{"count": 2}], kind
        assert live(table) == before, kind


def test_copy_changes_no_rows_of_a_table(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    before = live(table)
    for statement in (
        f"COPY t FROM '{tmp_path}/a.csv'",
        f"COPY t TO '{tmp_path}/b.csv' WITH (FORMAT csv)",
        "COPY t TO STDOUT",
        f"COPY t TO '{tmp_path}/b'",
    ):
        with pytest.raises(mw.InvalidCallError):
            mw.sql(ctx, statement)
        assert live(table) == before
    assert not list(tmp_path.glob("?*.csv"))
    mw.sql(ctx, "SET datafusion.sql_parser.enable_ident_normalization = 'false'")
    for place, source in enumerate(("t", "datafusion.public.t", "(SELECT * FROM t)")):
        copy = f"COPY {source} TO '{tmp_path}/{place}.csv'"
        assert mw.sql(ctx, copy).to_pylist() == [{"count": 2}]
