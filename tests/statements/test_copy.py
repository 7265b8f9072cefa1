"""COPY FROM and COPY TO."""

import re
from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.statements.beside_duckdb import SCHEMA, live


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


def test_what_changes_nothing_is_for_sessions_that_take_names_otherwise_too(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path
) -> None:
    mw.sql(ctx, "SET datafusion.sql_parser.enable_ident_normalization = 'false'")
    for place, source in enumerate(("t", "datafusion.public.t", "(SELECT * FROM t)")):
        copy = f"COPY {source} TO '{tmp_path}/{place}.csv'"
        assert mw.sql(ctx, copy).to_pylist() == [{"count": 2}]
    with pytest.raises(mw.UnsupportedError, match="enable_ident_normalization"):
        mw.sql(ctx, f"COPY t FROM '{tmp_path}/0.csv'")
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
        ("FROM '{}/bad.csv' STORED AS CSV RETURNING *", "COPY is written"),
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


WRITTEN_FROM = r"COPY t \[\(columns\)\] FROM 'place' \[STORED AS format\]"
WRITTEN_TO = r"COPY t TO 'place' \[STORED AS format\] \[PARTITIONED BY"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        *(
            (f"COPY t FROM {rest}", f"{WRITTEN_FROM}.*: '{found}'")
            for rest, found in (
                ("STDIN", "STDIN"),
                ("stdin WITH (FORMAT csv)", "stdin"),
                ("PROGRAM 'cat {}/a.csv'", "PROGRAM"),
                ("NULL", "NULL"),
                ("a.csv", "a"),
                ("'{}/a.csv' concat('a')", "concat"),
                ('"a.csv"', "a.csv"),
                ("'{}/a.csv' (FORMAT csv)", r"\("),
                ("('{}/a.csv') (FORMAT csv)", r"\("),
                ("$place (FORMAT csv)", r"\("),
                ("'{}/a.csv' WITH (FORMAT csv)", "WITH"),
                ("'{}/a.csv' CSV HEADER", "CSV"),
                ("concat('{}', '/a.csv') DELIMITER ','", "DELIMITER"),
                ("'{}' || '/a.csv' FORMAT csv", "FORMAT"),
                ("'{}/a.csv' WHERE n = 3", "WHERE"),
                ("'{}/a.csv', 'b.csv'", ","),
                ("'{}/a.csv' STORED AS CSV WHERE n = 3", "WHERE"),
                ("'{}/a.csv' OPTIONS ('a' 'b') STORED AS CSV", "STORED"),
            )
        ),
        ("COPY INTO t FROM '{}/a.csv'", f"{WRITTEN_FROM}.*: 'INTO'"),
        ("COPY INTO t (id) FROM '{}/a.csv'", f"{WRITTEN_FROM}.*: 'INTO'"),
        ("COPY t FROM '{}/a.csv' STORED AS", "format must follow.*: the end"),
        ("COPY t FROM '{}/a.csv' STORED AS 'CSV'", "format must follow.*: 'CSV'"),
        ("COPY t FROM 3", "place of files must be a text, not 3"),
        ("COPY t FROM (NULL)", "place of files must be a text, not None"),
        ("COPY t FROM ''", "place of files must be a text, not ''"),
        ("COPY t FROM (SELECT 1)", "place of files must be a text, not 1"),
        ("COPY t FROM '{}/bare'", "of '.*/bare' says no format: STORED AS"),
        ("COPY t FROM '{}/'", "says no format: STORED AS"),
        ("COPY t FROM '{}/a.csv' OPTIONS (nope 3)", '^Config value "nope" not found on CsvOptions'),
        ("COPY t FROM '{}/a.csv' OPTIONS ('format.has_header' 'maybe')", "^Error parsing 'maybe'"),
        ("COPY t FROM 'https://a.example/a.csv'", "^No suitable .*a.example/a.csv"),
        ("COPY t TO STDOUT", f"{WRITTEN_TO}.*: 'STDOUT'"),
        ("COPY t TO $place", f"{WRITTEN_TO}.*: '.place'"),
        ("COPY t TO '{}/b.csv' (FORMAT csv)", f"{WRITTEN_TO}.*: '\\('"),
        ("COPY t TO '{}/b.csv' WITH (FORMAT csv)", f"{WRITTEN_TO}.*: 'WITH'"),
        ("COPY (SELECT 1 AS n) TO '{}/b.csv' CSV", f"{WRITTEN_TO}.*: 'CSV'"),
        ("COPY t TO '{}/b'", "^Format not explicitly set"),
    ],
)
def test_other_forms_of_copy_are_refused_with_the_one_here(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path, statement: str, message: str
) -> None:
    (tmp_path / "a.csv").write_text("tenant,id,n\na,7,1\n")
    (tmp_path / "bare").write_text("tenant,id,n\na,7,1\n")
    before = live(table)
    text = statement.replace("{}", str(tmp_path))
    with pytest.raises(mw.InvalidCallError, match=f"(?s){message}") as caught:
        mw.sql(ctx, text, **({"place": f"{tmp_path}/a.csv"} if "$place" in text else {}))
    assert not re.search("Internal error|bug|caused by|CREATE EXTERNAL", str(caught.value))
    assert live(table) == before
    assert not (tmp_path / "b.csv").exists()
    table.close()


@pytest.mark.parametrize(
    "place",
    [
        *("$f || '/a.csv'", "concat($f, '/a.csv')", "('{}' || '/a.csv')", "'{}/a.csv'::text"),
        *("CAST('{}/a.csv' AS TEXT)", "$f || '/' || lower('A.CSV') STORED AS CSV OPTIONS ()"),
    ],
)
def test_the_place_may_be_an_expression(
    table: mw.Table, ctx: datafusion.SessionContext, tmp_path: Path, place: str
) -> None:
    (tmp_path / "a.csv").write_text("tenant,id,n\na,7,1\n")
    used = {"f": str(tmp_path)} if "$f" in place else {}
    text = f"COPY t FROM {place.replace('{}', str(tmp_path))}"
    assert mw.sql(ctx, text, **used).to_pylist() == [{"count": 1}]
    table.close()
