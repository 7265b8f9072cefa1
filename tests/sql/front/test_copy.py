"""COPY FROM and COPY TO."""

from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.sql.front.beside_duckdb import SCHEMA, live


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"], regions="bucket(id, 2)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 7, 5, 'old'), ('007', 8, 6, NULL)")
    return table


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "arrow"])
def test_rows_go_to_files_and_come_back(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path, ending: str
) -> None:
    before = live(table)
    place = tmp_path / f"rows.{ending}"
    assert mw.sql(ctx, f"COPY t TO '{place}'").to_pylist() == [{"count": 2}]
    assert place.exists()
    mw.sql(ctx, "UPDATE t SET n = 0")
    assert mw.sql(ctx, "COPY t FROM $place", place=str(place)).to_pylist() == [{"count": 2}]
    assert live(table) == before
    table.close()


def test_texts_are_read_as_the_types_of_their_columns_and_others_stay(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    place = tmp_path / "some.csv"
    place.write_text("id,tenant,n\n8,007,70\n9,1,\n")
    assert mw.sql(ctx, f"COPY t FROM '{place}'").to_pylist() == [{"count": 2}]
    found = {(row["tenant"], row["id"]): (row["n"], row["Name"]) for row in live(table)}
    assert found == {("007", 8): (70, None), ("1", 9): (None, None), ("a", 7): (5, "old")}
    (tmp_path / "bare").write_text("a;7;w\na;7;x\n")
    options = "OPTIONS ('format.has_header' 'false', 'format.delimiter' ';')"
    mw.sql(ctx, f"COPY t (tenant, id, \"Name\") FROM '{tmp_path}/bare' STORED AS CSV {options}")
    assert live(table)[-1] == {"tenant": "a", "id": 7, "n": 5, "Name": "x"}
    assert not [name for name in ctx.catalog().names() if "memwal" in name]
    table.close()


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("FROM '{}/none.csv'", "No files found"),
        ("FROM '{}/bad.csv'", "column 'n'.*'1.5'"),
        ("FROM '{}/other.csv'", r"no columns \['nope'\]"),
        ("(id, n) FROM '{}/bad.csv'", "3 columns, and 2"),
        ("FROM", "is missing, at line 1, column 12"),
        ("FROM '{}/bad.csv' OPTIONS", "parentheses must follow"),
        ("FROM '{}/bad.csv' STORED AS CSV RETURNING *", "must end here"),
        ("INTO '{}/bad.csv'", "FROM is missing"),
    ],
)
def test_what_can_not_be_read_is_refused_and_nothing_written(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path, rest: str, message: str
) -> None:
    (tmp_path / "bad.csv").write_text("tenant,id,n\na,7,1.5\n")
    (tmp_path / "other.csv").write_text("tenant,id,nope\na,7,1\n")
    before = live(table)
    with pytest.raises(mw.InvalidCallError, match=f"(?s){message}"):
        mw.sql(ctx, f"COPY t {rest.format(tmp_path)}")
    assert live(table) == before
    table.close()
