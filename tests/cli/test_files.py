"""Rows into files and back: `memwal sql --to` and `memwal load`."""

from __future__ import annotations

import copy
import datetime
import decimal
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memwal_sql as mw
from memwal_sql.cli import results
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.write.table_writer import TableWriter
from tests.cli.calls import as_json, call, ended, failing
from tests.each import each
from tests.model.pairs import SCHEMA, rows
from tests.model.writing import upsert_rows

FLAT = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "bytes": pa.binary(),
        "half": pa.float32(),
        "big": pa.uint64(),
        "truth": pa.bool_(),
        "day": pa.date32(),
        "clock": pa.time64("us"),
        "moment": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("ns"),
        "money": pa.decimal128(20, 3),
    }
)
NESTED = pa.schema(
    [
        *FLAT,
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("days", pa.list_(pa.date32())),
        pa.field("inner", pa.struct({"day": pa.date32(), "texts": pa.list_(pa.string())})),
    ]
)
_FULL = {
    "id": 1,
    "text": 'a,"b"\nc\\ \x1b[2J é',
    "bytes": b"\x00\xff",
    "half": 0.1,
    "big": 2**64 - 1,
    "truth": True,
    "day": datetime.date(1969, 12, 31),
    "clock": datetime.time(1, 2, 3, 456),
    "moment": datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000, datetime.UTC),
    "local": datetime.datetime(1960, 1, 2, 3, 4, 5, 600_000),
    "money": decimal.Decimal("-12345678901234567.125"),
    "vector": [1.5, -2.0],
    "days": [datetime.date(2026, 1, 2), None],
    "inner": {"day": None, "texts": ["", None, "x"]},
}
_EMPTY = {"id": 2, "text": "", "bytes": b""}
_NULL = {"id": 3}


def made(folder: Path, schema: pa.Schema) -> Any:
    values = [{n: row.get(n) for n in schema.names} for row in (_FULL, _EMPTY, _NULL)]
    table = mw.create_table(str(folder / "source"), schema, primary_key="id")
    upsert_rows(table, pa.Table.from_pylist(values, schema))
    return table


def contents(table: Any) -> Any:
    return table.scan().read_all().sort_by("id").to_pylist()


@pytest.mark.parametrize(
    ("name", "schema"),
    [("x.csv", FLAT), ("x.json", NESTED), ("x.jsonl", NESTED), ("x.parquet", NESTED)],
)
def test_rows_come_back_from_a_file_as_they_were(
    tmp_path: Path, name: str, schema: pa.Schema
) -> None:
    source = made(tmp_path, schema)
    file = tmp_path / name
    assert call("sql", source.uri, "SELECT * FROM t ORDER BY id", "--to", file) == ""
    other = mw.create_table(str(tmp_path / "copy"), schema, primary_key="id")
    assert call("load", other.uri, file) == "3 rows loaded\n"
    assert contents(other) == contents(source)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.parquet"])
def test_a_table_is_made_from_a_file(tmp_path: Path, name: str) -> None:
    source = made(tmp_path, pa.schema({"id": pa.int64(), "text": pa.string()}))
    call("sql", source.uri, "SELECT * FROM t ORDER BY id", "--to", tmp_path / name)
    new = tmp_path / "new"
    by = ("--primary-key", "id", "--region-by", "bucket(id, 2)")
    assert as_json("load", new, tmp_path / name, *by) == {"rows": 3}
    assert contents(mw.open_table(str(new))) == contents(source)
    assert "bucket(id, 2)" in call("info", new)


def test_a_file_without_rows_adds_none_and_makes_no_table(pairs: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    assert as_json("load", pairs.uri, tmp_path / "x.json") == {"rows": 0}
    making = ("load", tmp_path / "new", tmp_path / "x.json", "--primary-key", "id")
    assert "x.json: it has no rows" in failing(*making, code=ExitCode.CALL)
    assert not (tmp_path / "new").exists()


SPARSE = {
    "text": "2020-01-01",
    "money": "12345678901234567.89",  # also as a number
    "big": 2**63 + 1,
    "half": "0.1",
    "when": "2020-01-01",
    "day": "2020-01-01",
    "bytes": "00ff",
    "inner": {"text": "2020-01-01", "texts": ["2020-01-01"]},
}
SPARSE_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "money": pa.decimal128(30, 2),
        "big": pa.uint64(),
        "half": pa.string(),
        "when": pa.timestamp("us"),
        "day": pa.date32(),
        "bytes": pa.binary(),
        "inner": pa.struct({"text": pa.string(), "texts": pa.list_(pa.string())}),
    }
)
_SPARSE_ROW = {
    **SPARSE,
    "money": decimal.Decimal("12345678901234567.89"),
    "when": datetime.datetime(2020, 1, 1),
    "day": datetime.date(2020, 1, 1),
    "bytes": b"\x00\xff",
}


@pytest.mark.parametrize("before", [0, 1, 1_200, 20_000])  # the last ones after 8 MB
@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_a_column_has_its_type_wherever_a_row_first_names_it(
    tmp_path: Path, name: str, before: int
) -> None:
    table = mw.create_table(str(tmp_path / "t"), SPARSE_SCHEMA, primary_key="id")
    blank = " " * 500  # Arrow cuts files in blocks of bytes
    lines = [f'{{"id": {n}{blank}}}' for n in range(before)]
    as_number = {key: f'"{value}"' if key == "money" else value for key, value in SPARSE.items()}
    for number, row in enumerate((SPARSE, as_number)):
        text = json.dumps({"id": before + number, **row})
        lines.append(text.replace('"\\"', "").replace('\\""', ""))
    assert '"money": 12345678901234567.89' in lines[-1]
    file = tmp_path / name
    file.write_text(f"[{', '.join(lines)}]\n" if name == "x.json" else "\n".join(lines))
    assert as_json("load", table.uri, file, "--missing", "null") == {"rows": before + 2}
    rows = contents(table)
    nulls = dict.fromkeys(SPARSE)
    assert rows[:before] == [{"id": n, **nulls} for n in range(before)]
    assert rows[before:] == [{"id": before + n, **_SPARSE_ROW} for n in range(2)]


@pytest.mark.parametrize("form", ["lines", "array", "indented"])
def test_rows_of_an_array_are_read_as_they_are_written(tmp_path: Path, form: str) -> None:
    schema = pa.schema({"id": pa.int64(), "s": pa.string(), "f": pa.float64()})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    rows = [
        {"id": 2**63 - 1, "s": '\u2028\x85\\"\n],[ {}', "f": 0.1},
        {"id": -(2**63), "s": "\U0001f600", "f": 5e-324},
    ]
    lines = [json.dumps(row, ensure_ascii=row["id"] < 0) for row in rows]
    texts = {
        "lines": "\r\n".join(["", *lines, ""]),
        "array": "\n [" + " ,".join(lines) + "\n]\n",
        "indented": json.dumps(rows, indent=2),
    }
    file = tmp_path / "x.json"
    file.write_text(texts[form], newline="")
    assert as_json("load", table.uri, file) == {"rows": 2}
    assert contents(table) == rows[::-1]


@pytest.fixture
def pairs(tmp_path: Path) -> Any:
    table = mw.create_table(str(tmp_path / "pairs"), SCHEMA, primary_key="id")
    upsert_rows(table, rows(*((n, n) for n in range(1_500))))
    return table


def test_redirected_output_is_whole(pairs: Any) -> None:
    lines = call("sql", pairs.uri, "SELECT * FROM t ORDER BY id").splitlines()
    assert lines[0].split() == ["id", "n"]
    assert [line.split() for line in lines[1:]] == [[str(n), str(n)] for n in range(1_500)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go to a terminal."""

    class Terminal:
        def __getattr__(self, name: str) -> Any:
            return getattr(original.stdout, name)

        def isatty(self) -> bool:
            return True

    original = results.sys
    monkeypatch.setattr(results, "sys", type("Sys", (), {"stdout": Terminal()}))


@pytest.mark.usefixtures("terminal")
def test_a_terminal_shows_the_first_thousand(pairs: Any) -> None:
    result = ended("sql", pairs.uri, "SELECT * FROM t")
    assert len(result.stdout.splitlines()) == 1_001
    assert result.stderr == "only the first 1000 rows: --max-rows shows more\n"


def test_statements_come_from_files_and_standard_input(pairs: Any, tmp_path: Path) -> None:
    file = tmp_path / "count.sql"
    # With the mark that editors on Windows put before a text.
    file.write_text("\ufeffSELECT count(*) AS c\nFROM t -- all of them\n", "utf-8")
    for way in (("--file", file), ("-f", file)):
        assert call("sql", pairs.uri, *way).split() == ["c", "1500"]
    for way in (("-",), ("--file", "-")):
        assert call("sql", pairs.uri, *way, stdin="SELECT 5 AS five").split() == ["five", "5"]
    assert "ScanExec" in call("explain", pairs.uri, "--file", file)
    for wrong in ((), ("SELECT 1", "--file", file), ("--file", tmp_path / "none.sql")):
        failing("sql", pairs.uri, *wrong, code=ExitCode.CALL)


def test_rows_come_from_standard_input(pairs: Any) -> None:
    text = '{"id": 1, "n": -1}\n{"n": null, "id": 7000}\n'
    assert call("load", pairs.uri, "-", "--format", "json", stdin=text) == "2 rows loaded\n"
    assert call("load", pairs.uri, "-", "--format", "csv", stdin="n,id\n5,6\n") == "1 row loaded\n"
    assert pairs.get([1, 6, 7000]).to_pylist() == [
        {"id": 1, "n": -1},
        {"id": 6, "n": 5},
        {"id": 7000, "n": None},
    ]
    assert "--format" in failing("load", pairs.uri, "-", code=ExitCode.CALL, stdin=text)


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow"])
def test_rows_come_from_a_pipe_in_every_format(pairs: Any, tmp_path: Path, form: str) -> None:
    """Some formats are read from the end, or twice: "not seekable" was all that was said."""
    texts = {"csv": b"id,n\n1,-1\n", "json": b'[{"id": 1, "n": -1}]'}
    table = pa.table({"id": [1], "n": [-1]})
    file = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, file)
    elif form == "arrow":
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    data = texts.get(form, file.getvalue())
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place, key in ((pairs.uri, ()), (tmp_path / "new", ("--primary-key", "id"))):
        sender = threading.Thread(target=lambda: pipe.write_bytes(data), daemon=True)
        sender.start()
        assert as_json("load", place, pipe, "--format", form, *key) == {"rows": 1}
        sender.join()
        assert mw.open_table(str(place)).get(1)["n"].to_pylist() == [-1]
    text = call("load", tmp_path / "in", "-", "--format", form, "--primary-key", "id", stdin=data)
    assert text == "1 row loaded\n"


def test_rows_go_to_standard_output_in_every_format(pairs: Any) -> None:
    query = ("sql", pairs.uri, "SELECT * FROM t WHERE id < 2 ORDER BY id", "--output")
    assert call(*query, "csv") == '"id","n"\n0,0\n1,1\n'
    assert call(*query, "jsonl") == '{"id": 0, "n": 0}\n{"id": 1, "n": 1}\n'
    assert json.loads(call(*query, "json")) == [{"id": 0, "n": 0}, {"id": 1, "n": 1}]
    data = ended(*query, "parquet").stdout_bytes
    assert pq.read_table(pa.BufferReader(data)).to_pylist() == [
        {"id": 0, "n": 0},
        {"id": 1, "n": 1},
    ]
    none = ("sql", pairs.uri, "SELECT * FROM t WHERE id < 0", "--output")
    assert [call(*none, form) for form in ("csv", "jsonl", "json")] == ['"id","n"\n', "", "[]\n"]


@each(
    "name, text, message",
    [
        ("x.csv", "id,n\n1,x\n", "invalid value 'x'"),
        ("x.csv", "id,n,other\n1,2,3\n", "other"),
        ("x.json", '{"id": 1, "n": 1.5}\n', "1.5"),
        ("x.json", '[{"id": 1, "n": 2', "x.json"),
        ("x.json", "[" * 100_000, "x.json"),
        ("x.json", '[{"id": 1, "n": 2} {"id": 2, "n": 2}]', "x.json: Expecting ',' delimiter"),
        ("x.json", '[{"id": 1, "n": 2}', "x.json: Expecting ',' delimiter"),
        ("x.json", '[{"id": 1, "n": 2}, ', "x.json: Expecting value"),
        ("x.json", '[{"id": 1, "n": 2}] 5', "x.json: Extra data"),
        ("x.json", '[{"id": 1, "n": 2}, 5]', "row 2 is not an object: 5"),
        ("x.json", "null\n", "row 1 is not an object: None"),
        ("x.json", '{"id": 1, "n": 2, "n": 3}\n', "has a name twice"),
        ("x.json", '{"id": 1, "n": 2}\n{"late": 3}\n', "the columns ['late']"),
        ("x.json", '{"id": 1, "n": 2, "other": 3}\n', "other"),
        ("x.parquet", "no Parquet", "x.parquet"),
        ("x.arrow", "no Arrow", "x.arrow"),
        ("x.unknown", "", "add --format, one of ['parquet', "),
    ],
)
def test_a_file_that_does_not_fit_is_named(
    pairs: Any, tmp_path: Path, name: str, text: str, message: str
) -> None:
    before = contents(pairs)
    file = tmp_path / name
    file.write_text(text)
    assert message in failing("load", pairs.uri, file, code=ExitCode.CALL)
    assert contents(pairs) == before


def test_what_csv_and_json_can_not_hold_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path, NESTED)
    everything = ("sql", table.uri, "SELECT * FROM t")
    file = tmp_path / "x.csv"
    file.write_text("kept")
    text = failing(*everything, "--to", file, code=ExitCode.CALL)
    assert "CSV has no form for the columns ['vector', 'days', 'inner']" in text
    assert file.read_text() == "kept"
    twice = ("sql", table.uri, "SELECT id, id FROM t", "--output")
    for form in ("json", "jsonl", "parquet"):
        failing(*twice, form, code=ExitCode.CALL)
    assert "says no format" in failing(*everything, "--to", "x", code=ExitCode.CALL)


@pytest.mark.parametrize("form", ["json", "jsonl", "csv", "table"])
def test_a_statement_that_fails_leaves_nothing_or_whole_rows(pairs: Any, form: str) -> None:
    early = "SELECT arrow_cast('x', 'Int64') AS n FROM t"
    late = "SELECT id, 1 / (id - 1400) AS n FROM t ORDER BY id"
    for statement in (early, late):
        result = ended("sql", pairs.uri, statement, "--output", form, code=ExitCode.CALL)
        if form in ("json", "table"):
            assert result.stdout == ""
        elif form == "jsonl":
            assert all(json.loads(line) for line in result.stdout.splitlines())
        else:
            assert result.stdout == "" or result.stdout.endswith("\n")


def test_an_error_of_the_table_names_no_file(
    pairs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(TableWriter, "upsert", broken)
    file = tmp_path / "x.csv"
    file.write_text("id,n\n1,1\n")
    result = ended("load", pairs.uri, file, "--output", "json", code=ExitCode.BUG)
    error = json.loads(result.stderr)["error"]
    assert error["kind"] == "OSError" and "x.csv: " not in error["message"]
    monkeypatch.undo()
    file.write_text("id,n\n" + "".join(f"{n},{n}\n" for n in range(300_000)) + "1,x\n")
    assert "x.csv: " in failing("load", pairs.uri, file, code=ExitCode.CALL)


def test_a_field_that_the_type_of_a_column_has_not_is_an_error(tmp_path: Path) -> None:
    """It was dropped."""
    schema = pa.schema({"id": pa.int64(), "inner": pa.struct({"a": pa.int64()})})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    file = tmp_path / "x.json"
    file.write_text('{"id": 1, "inner": {"a": 1, "b": 2}}\n')
    for missing in ("error", "null"):
        text = failing("load", table.uri, file, "--missing", missing, code=ExitCode.CALL)
        assert "x.json: row 1 has the fields ['inner.b']" in text
    assert contents(table) == []


def as_file(rows: list[Any], file: Path) -> Path:
    lines = [json.dumps(row) for row in rows]
    file.write_text(f"[{', '.join(lines)}]" if file.suffix == ".json" else "\n".join(lines))
    return file


WHOLE = {"id": 1, "a": "B1", "st": {"x": 2, "y": 2}, "list": [{"x": 1, "y": None}, None]}


@each("existing", [True, False])
@each("name", ["x.json", "x.jsonl"])
@each(
    "row, said",
    [
        ({"id": 2, "st": None}, "lacks the columns ['a', 'list']"),
        ({"id": 2, "st": {"x": 2}}, "lacks the columns ['a', 'list']"),
        ({**WHOLE, "st": {"x": 2}}, "lacks the fields ['st.y']"),
        ({**WHOLE, "st": {}}, "lacks the fields ['st.x', 'st.y']"),
        ({**WHOLE, "list": [None, {"y": 1}]}, "lacks the fields ['list.x']"),
        ({}, "lacks the columns ['id', 'a', 'st', 'list']"),
    ],
)
def test_a_row_of_json_that_lacks_something_is_named(
    tmp_path: Path, name: str, row: Any, said: str, existing: bool
) -> None:
    """It became null, and replaced the value that was there."""
    schema = pa.schema(
        {
            "id": pa.int64(),
            "a": pa.string(),
            "st": pa.struct({"x": pa.int64(), "y": pa.int64()}),
            "list": pa.list_(pa.struct({"x": pa.int64(), "y": pa.int64()})),
        }
    )
    row = copy.deepcopy(row)
    uri = tmp_path / "t"
    arguments = ("load", uri, as_file([WHOLE, row], tmp_path / name))
    if existing:
        mw.create_table(str(uri), schema, primary_key="id")
    else:
        arguments = (*arguments, "--primary-key", "id")
    text = failing(*arguments, code=ExitCode.CALL)
    assert f"{name}: row 2 {said}" in text and "--missing null" in text
    if existing:
        assert contents(mw.open_table(str(uri))) == []
    else:
        assert not uri.exists()
    if "id" not in row:
        return
    assert as_json(*arguments, "--missing", "null") == {"rows": 2}
    expected = {**dict.fromkeys(WHOLE), **row}
    places = [expected["st"], *(expected["list"] or ())]
    for place in filter(lambda place: place is not None, places):
        place |= {"x": None, "y": None, **place}
    assert contents(mw.open_table(str(uri)))[-1] == expected


NESTED_KINDS = [
    pa.list_(pa.int64()),
    pa.list_(pa.float32(), 2),
    pa.struct({"x": pa.int64()}),
    pa.fixed_shape_tensor(pa.float32(), [2]),
]


@pytest.mark.parametrize("kind", NESTED_KINDS, ids=str)
def test_csv_need_not_have_the_columns_that_it_has_no_form_for(
    tmp_path: Path, kind: pa.DataType
) -> None:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "inner": kind})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    file = tmp_path / "x.csv"
    file.write_text("id,n\n1,2\n")
    text = failing("load", table.uri, file, code=ExitCode.CALL)
    assert "x.csv: the rows lack the columns ['inner']" in text and "--missing null" in text
    assert as_json("load", table.uri, file, "--missing", "null") == {"rows": 1}
    assert contents(table) == [{"id": 1, "n": 2, "inner": None}]
    file.write_text("id,n,inner\n2,2,\n")
    for missing in ("error", "null"):
        text = failing("load", table.uri, file, "--missing", missing, code=ExitCode.CALL)
        assert "column 'inner'" in text and "CSV has no form for" in text
    assert table.count_rows() == 1


@each("missing", ["error", "null"])
@each("place", [5, "text", "", [1], [["x", 1]], True, {"x": {"x": 1}}])
def test_what_is_no_struct_is_refused(tmp_path: Path, place: Any, missing: str) -> None:
    schema = pa.schema({"id": pa.int64(), "st": pa.struct({"x": pa.int64()})})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    file = as_file([{"id": 1, "st": place}], tmp_path / "x.json")
    text = failing("load", table.uri, file, "--missing", missing, code=ExitCode.CALL)
    assert "x.json: " in text and contents(table) == []


def test_structs_of_parquet_that_lack_fields_are_refused_in_the_words_of_the_command(
    tmp_path: Path,
) -> None:
    schema = pa.schema({"id": pa.int64(), "st": pa.struct({"x": pa.int64(), "y": pa.int64()})})
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": [1], "st": [{"x": 1}]}), file)
    text = failing("load", table.uri, file, code=ExitCode.CALL)
    assert "x.parquet: the rows lack the fields ['st.y']" in text and "--missing null" in text
    assert as_json("load", table.uri, file, "--missing", "null") == {"rows": 1}
    assert contents(table) == [{"id": 1, "st": {"x": 1, "y": None}}]


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.parquet"])
def test_columns_that_a_file_lacks_are_an_error_or_null(
    tmp_path: Path, pairs: Any, name: str
) -> None:
    file = tmp_path / name
    query = ("sql", pairs.uri, "SELECT id FROM t WHERE id IN (1, 2)", "--to", file)
    call(*query)
    text = failing("load", pairs.uri, file, code=ExitCode.CALL)
    assert f"{name}: " in text and "the columns ['n']" in text and "--missing null" in text
    assert pairs.get(1)["n"].to_pylist() == [1]
    assert as_json("load", pairs.uri, file, "--missing", "null") == {"rows": 2}
    assert pairs.get([1, 2])["n"].to_pylist() == [None, None]
    call("sql", pairs.uri, "SELECT n FROM t LIMIT 1", "--to", file)
    text = failing("load", pairs.uri, file, "--missing", "null", code=ExitCode.CALL)
    assert "'id'" in text


def test_rows_before_a_failure_are_told(pairs: Any, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("id,n\n1,-1\n")
    (tmp_path / "bad.csv").write_text("id,n\n2,x\n")
    arguments = ("load", pairs.uri, tmp_path / "good.csv", tmp_path / "bad.csv")
    assert "1 row written before" in failing(*arguments, code=ExitCode.CALL)
    assert "bad.csv" in failing(*arguments, code=ExitCode.CALL)
    result = ended(*arguments, "--output", "json", code=ExitCode.CALL)
    error = json.loads(result.stderr)["error"]
    assert error["kind"] == "InvalidCallError"
    assert (error["file"], error["rows_written"]) == (str(tmp_path / "bad.csv"), 1)
    nothing = ("load", pairs.uri, tmp_path / "bad.csv")
    assert "written" not in failing(*nothing, code=ExitCode.CALL)
    error = json.loads(ended(*nothing, "--output=json", code=ExitCode.CALL).stderr)["error"]
    assert (error["file"], error["rows_written"]) == (str(tmp_path / "bad.csv"), 0)
    assert pairs.get(1)["n"].to_pylist() == [-1]


def test_regions_are_for_a_new_table(pairs: Any, tmp_path: Path) -> None:
    text = failing("load", pairs.uri, "x.csv", "--region-by", "bucket(id, 2)", code=ExitCode.CALL)
    assert "--primary-key" in text


def test_no_table_is_made_whose_regions_only_a_program_can_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    new = ("load", tmp_path / "new", tmp_path / "a.csv", "--primary-key", "id")
    text = failing(*new, "--region-by", "manual", code=ExitCode.CALL)
    assert "bucket(id, 8)" in text
    assert not (tmp_path / "new").exists()


def test_a_new_table_has_no_infinity_of_a_number_that_is_too_large(tmp_path: Path) -> None:
    for name, text in (
        ("x.csv", "id,f\n1,1.5\n2,1e400\n"),
        ("x.jsonl", '{"id": 1, "f": 1.5}\n{"id": 2, "f": -1e400}\n'),
        ("x.json", '[{"id": 1, "f": 1.5}, {"id": 2, "f": {"a": [1e400]}}]'),
    ):
        (tmp_path / name).write_text(text)
        new = tmp_path / f"new {name}"
        load = ("load", new, tmp_path / name, "--primary-key", "id")
        assert "1e400" in failing(*load, code=ExitCode.CALL)
        assert name == "x.csv" or not new.exists()
    (tmp_path / "x.csv").write_text("id,f\n1, 1.5\n2,inf\n3,\n")
    call("load", tmp_path / "new", tmp_path / "x.csv", "--primary-key", "id")
    found = mw.open_table(tmp_path / "new").to_arrow().sort_by("id")
    assert found["f"].to_pylist() == [1.5, float("inf"), None]
