"""Files as sources: `upsert("day.parquet")` and its like do what they do with the rows."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import memwal_sql as mw
from memwal_sql.cli.output import plain
from memwal_sql.write.ingest.pieces import Pieces
from tests.each import each
from tests.soak import IS_SOAK

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us", "UTC")})
TIME = datetime.datetime(2026, 1, 2, 3, 4, 5, 600_000, datetime.UTC)
ROWS: list[dict[str, Any]] = [{"id": 1, "n": 2, "at": TIME}, {"id": 7, "n": None, "at": None}]
PARTS = [{"id": 1, "n": 5}, {"id": 8, "n": 6}]
CHANGES = [{"_op": "u", **ROWS[0], "n": 9}, {"_op": "d", "id": 2}, {"_op": "c", **ROWS[1]}]
ENVELOPES = [
    {"op": "c", "before": None, "after": ROWS[1], "ts_ms": 5},
    {"op": "d", "before": {"id": 2, "n": None, "at": None}, "after": None, "ts_ms": 6},
    {"op": "u", "before": ROWS[1], "after": {**ROWS[1], "n": 3}, "ts_ms": 7},
]
STREAMS: dict[str, list[Any]] = {
    "envelopes": ENVELOPES,
    "payloads and tombstones": [part for e in ENVELOPES for part in ({"payload": e}, None)],
    "deletes first": [*({"_op": "d", "id": n} for n in range(10_001)), CHANGES[0]],
    "deletes of other columns": [{"_op": "d", "id": 1, "x": "?"}, CHANGES[1], CHANGES[0]],
    "nothing": [],
}


def as_json(table: Any, file: Path) -> None:
    rows = table if isinstance(table, list) else table.to_pylist()
    lines = [json.dumps(row, default=plain) for row in rows]
    file.write_text(f"[{','.join(lines)}]" if file.suffix == ".json" else "\n".join(lines))


FORMATS: dict[str, Callable[[Any, Path], None]] = {
    "x.parquet": pq.write_table,
    "X.PARQUET": pq.write_table,
    "x.arrow": feather.write_feather,
    "x.csv": pa_csv.write_csv,
    "x.json": as_json,
    "x.jsonl": as_json,
}


def made(place: Path) -> mw.Table:
    table = mw.create_table(place, SCHEMA, "id", "bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert([{"id": n, "n": n, "at": TIME} for n in range(5)])
    return table


def contents(table: mw.Table) -> Any:
    return table.to_arrow().sort_by("id").to_pylist()


CALLS: list[tuple[Callable[[Any, Any], mw.WriteResult], list[Any]]] = [
    (lambda writer, rows: writer.upsert(rows), ROWS),
    (lambda writer, rows: writer.upsert(rows, atomic=True), ROWS),
    (lambda writer, rows: writer.upsert(rows, when="t.n > s.n"), ROWS),
    (lambda writer, rows: writer.upsert(rows, set={"n": "t.n + s.n"}), ROWS),
    (lambda writer, rows: writer.upsert(rows), PARTS),
    (lambda writer, rows: writer.upsert(rows, missing="null"), PARTS),
    (lambda writer, rows: writer.insert(rows), ROWS[1:]),
    (lambda writer, rows: writer.insert(rows, missing="null"), PARTS[1:]),
    (lambda writer, rows: writer.delete(rows), ROWS),
    (lambda writer, rows: writer.delete(rows, when="t.n = 1"), ROWS),
    (lambda writer, rows: writer.apply(rows), CHANGES),
    (lambda writer, rows: writer.apply(rows, when="t.n < s.n"), CHANGES),
]


@each(
    "number, name",
    [
        (number, name)
        for number in range(len(CALLS))
        for place, name in enumerate(FORMATS)
        if IS_SOAK or (place - number) % len(FORMATS) in (0, 3)
    ],
)
def test_a_file_is_its_rows(tmp_path: Path, number: int, name: str) -> None:
    """Each call with a format of columns or of text; `MEMWAL_SOAK=10` takes each with all."""
    call, rows = CALLS[number]
    file = tmp_path / name
    types = {**{field.name: field.type for field in SCHEMA}, "_op": pa.string()}
    names = dict.fromkeys(name for row in rows for name in row)
    columns = pa.schema([(name, types[name]) for name in names])
    FORMATS[name](rows if "json" in name else pa.Table.from_pylist(rows, columns), file)
    results = []
    for place, source in (("a", rows), ("b", file)):
        table = made(tmp_path / place)
        with table.writer() as writer:
            result = call(writer, source)
        results.append((result.rows, result.skipped, result.not_found, contents(table)))
    assert results[0] == results[1]


@each(
    "name, stream, options",
    [
        ("x.jsonl" if (number + place) % 2 else "x.json", stream, options)
        for number, stream in enumerate(STREAMS)
        for place, options in enumerate([{}, {"when": "true"}, {"atomic": True}])
    ],
)
def test_a_file_of_json_is_the_stream_of_changes_that_it_has(
    tmp_path: Path, name: str, stream: str, options: Any
) -> None:
    as_json(STREAMS[stream], tmp_path / name)
    results = []
    for place, source in (("a", STREAMS[stream]), ("b", tmp_path / name)):
        table = made(tmp_path / place)
        with table.writer() as writer:
            if options.get("when") and stream == "deletes of other columns":
                with pytest.raises(mw.InvalidCallError, match=r"no columns \['x'\]"):
                    writer.apply(source, **options)
                continue
            result = writer.apply(source, **options)
        results.append((result.rows, contents(table)))
    assert results[1:] == results[:1]


def test_changes_in_a_file_have_the_forms_of_json(tmp_path: Path) -> None:
    """Of each type that JSON has a form for, in keys and in other columns."""
    values = {
        "b": b"\x01\xff",
        "t": datetime.time(1, 2, 3),
        "d": datetime.date(2026, 1, 2),
        "s": {"at": TIME, "l": [b"\x02", None]},
        "m": Decimal("1.50"),
        "f": 0.1,
    }
    key, rest = [n for n in values if n in "btdm"], [n for n in values if n not in "btdm"]
    schema = pa.Table.from_pylist([values]).schema
    file = tmp_path / "x.jsonl"
    table = mw.create_table(tmp_path / "t", schema, key)
    with table.writer() as writer:
        as_json([{"_op": "c", **values}], file)
        writer.apply(file)
        assert table.to_arrow().to_pylist() == [values]
        as_json([{"_op": "d", **{n: values[n] for n in key}, **dict.fromkeys(rest, "?")}], file)
        writer.apply(file)
        assert table.count_rows() == 0


@each("call", ["upsert", "insert", "delete", "apply"])
@each("name", ["x.parquet", "x.arrow", "x.csv", "x.json", "x.jsonl"])
def test_a_file_without_rows_writes_none(tmp_path: Path, call: str, name: str) -> None:
    tmp_path.mkdir(exist_ok=True)
    table, fields = made(tmp_path / "t"), [*SCHEMA, pa.field("_op", pa.string())]
    columns = pa.schema(fields if call == "apply" else SCHEMA)
    FORMATS[name](columns.empty_table(), tmp_path / name)
    with table.writer() as writer:
        assert getattr(writer, call)(tmp_path / name).rows == 0


def test_columns_that_come_late_are_named_or_null_before(tmp_path: Path) -> None:
    table, file = mw.create_table(tmp_path / "t", SCHEMA, "id"), tmp_path / "x.jsonl"
    early = [{"id": n, "at": None} for n in range(10_000)]
    as_json([*early, {"id": 10_000, "n": 1, "at": None}], file)
    with table.writer() as writer:
        with pytest.raises(mw.InvalidCallError, match=r"10001 has the columns \['n'\].*the same"):
            writer.upsert(file)
        writer.upsert(file, missing="null")
    assert table.to_arrow(filter="n IS NOT NULL OR id < 1").num_rows == 2


def test_a_file_is_a_path_as_text_too_and_in_a_transaction(tmp_path: Path) -> None:
    table, file = made(tmp_path / "t"), tmp_path / "x.jsonl"
    as_json(ROWS, file)
    with mw.transaction(table) as tx:
        tx.upsert("t", str(file))
        tx.delete("t", [0, 2, 3, 4])
    assert contents(table) == ROWS
    with mw.transaction(table) as tx:
        tx.delete("t", file)
    assert contents(table) == []


def test_a_text_is_a_key_of_delete(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", pa.schema({"file": pa.string()}), "file")
    names = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    (tmp_path / "a.csv").write_text(f"file\n{names[1]}\n")
    with table.writer() as writer:
        writer.upsert({"file": names})
        writer.delete(names[0])
        assert table.to_arrow()["file"].to_pylist() == names[1:]
        writer.delete(Path(names[0]))
    assert table.count_rows() == 0


def test_insert_gives_columns_that_a_file_lacks_their_default_or_null(tmp_path: Path) -> None:
    table, file = made(tmp_path / "t"), tmp_path / "x.json"
    file.write_text('{"id": 7000, "n": 3}')
    with table.writer() as writer:
        assert writer.insert(file).rows == 1
    assert table.get([7000], ["n", "at"]).to_pylist() == [{"n": 3, "at": None}]


def test_a_file_is_written_piece_by_piece(tmp_path: Path) -> None:
    table, file = mw.create_table(tmp_path / "t", SCHEMA, "id"), tmp_path / "x.jsonl"
    good = "".join(f'{{"id": {n}, "n": 1, "at": null}}\n' for n in range(30_000))
    file.write_text(good + '{"id": 9, "n": "x", "at": null}\n')
    refused = pytest.raises(mw.InvalidCallError, match=r"x\.jsonl: row 30001: column 'n': 'x'")
    with table.writer() as writer, Pieces.set(piece_bytes=100_000), refused as raised:
        writer.upsert(file)
    written = table.count_rows()
    assert raised.value.__notes__ == [f"the first {written} rows of this call are written"]
    assert 20_000 < written < 30_000


@each(
    "call, name, text, message",
    [
        ("upsert", "x.txt", "", r"'.*x.txt' is not a file of rows, whose name ends with one of"),
        ("upsert", "", "", "is not a file of rows"),
        ("insert", "none.csv", None, r"there is no file '.*none.csv': for a folder"),
        ("upsert", "folder.parquet", None, r"give pyarrow.dataset.dataset\('.*folder.parquet'\)"),
        ("upsert", "x.parquet", "no Parquet", r"x.parquet: .*magic"),
        ("upsert", "x.csv", "id,n,at\nx,1,\n", r"x.csv: .*'x'"),
        ("upsert", "x.csv", "id,n,other\n1,1,1\n", r"no columns \['other'\]"),
        ("upsert", "x.json", '{"id": 1, "other": 3}', r"row 1 has the columns \['other'\]"),
        (
            "upsert",
            "x.json",
            '{"id": 1, "n": 3}\n{"id": 2}',
            r"row 2 lacks .*'n'\] that other rows",
        ),
        (
            "insert",
            "x.json",
            '{"id": 7, "n": 3}\n{"id": 8}',
            r"row 2 lacks .* that other rows have",
        ),
        ("upsert", "x.csv", "id,n,at\n9,1,\n,1,\n", r"x.csv: .*row 1 has a null"),
        ("upsert", "x.csv", "id,n\n9,1\n,1\n", r"x.csv: .*null"),
        ("insert", "x.csv", "id,n,at\n9,1,\n,1,\n", r"x.csv: .*null"),
        ("upsert", "x.csv", "root:x:0\nuser:x:1\n", r"^[^ ]*x.csv: its first line names none of"),
        ("upsert", "x.json", "{}", "row 1 is empty: give the columns of the key"),
        ("upsert", "x.json", '{"n": 1}', "primary key column 'id'"),
        ("apply", "x.json", '{"id": 1, "n": 3}', r"x.json: op='_op': the rows have no such"),
        ("apply", "x.json", '{"_op": "c", "id": 9}', r"x.json: the rows lack the columns"),
        ("apply", "x.json", "3", "x.json: list is not a set of rows"),
        ("delete", "x.json", "3", "x.json: a row of JSON is an object"),
        ("apply", "x.json", '{"_op": "z", "id": 1}', "'z' in '_op'"),
        ("delete", "x.json", '{"id": 1}\n{"n": 3}', "x.json: .*null"),
        ("delete", "x.txt", "", "is not a file of rows"),
    ],
)
def test_what_is_no_file_of_rows_is_refused(
    tmp_path: Path, call: str, name: str, text: str | None, message: str
) -> None:
    table = made(tmp_path / "t")
    (tmp_path / "folder.parquet").mkdir()
    before, file = contents(table), tmp_path / name
    if text is not None and name:
        file.write_text(text)
    with table.writer() as writer, pytest.raises(mw.InvalidCallError, match=message):
        getattr(writer, call)(file)
    assert contents(table) == before
