"""A CSV file is read as Python's strict reader reads it, or refused."""

from __future__ import annotations

import csv
import io
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.files import FileFormat, batches_of
from memwal_sql.write.ingest.missing import ERROR
from tests.each import each

NAMES = ("id", "s", "t")
SCHEMA = pa.schema([pa.field(name, pa.string()) for name in NAMES])


def read(path: Path, schema: pa.Schema | None = SCHEMA) -> list[list[Any]] | None:
    """The rows of a file; None if it is refused."""
    try:
        with batches_of(str(path), FileFormat.CSV, schema, missing=ERROR) as (_, batches):
            return [list(row.values()) for batch in batches for row in batch.to_pylist()]
    except InvalidCallError:
        return None


def strictly(text: str) -> list[list[str]] | None:
    """The rows by Python's reader; None for a file that ends within quotes, or a ragged row."""
    try:
        header, *rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row
        ]
    except csv.Error:
        return None
    return rows if all(len(row) == len(header) for row in rows) else None


def plain(rows: list[list[Any]] | None) -> list[list[str]] | None:
    """Rows without the difference of null and the empty text, which Python's reader lacks."""
    return None if rows is None else [[value or "" for value in row] for row in rows]


# The text of a float, and what is read; None if it is refused.
FLOATS = {
    "1e400": None,
    "-1e400": None,
    "x": None,
    "1e308": 1e308,
    " 1.5 ": 1.5,
    "inf": math.inf,
    "-inf": -math.inf,
    "1e-400": 0.0,
    '"2"': 2.0,
}


@each("text", FLOATS)
def test_a_float_is_infinite_only_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(f"id,f\n1,{text}\n2,\n")
    expected = FLOATS[text]
    rows = read(path, pa.schema({"id": pa.int64(), "f": pa.float64()}))
    assert rows == (None if expected is None else [[1, expected], [2, None]])


def test_a_file_that_was_cut_anywhere_is_read_right_or_refused(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    path = tmp_path / "x.csv"
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL):
        out = io.StringIO(newline="")
        writer = csv.writer(out, quoting=quoting, lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(NAMES)
        values = ("", '"', '""', "a", "a,b", "\n", '5"', "x\r\ny", 'say "so"', ",")
        for _ in range(6):
            writer.writerow([rng.choice("ab"), rng.choice(values), rng.choice(values)])
        text = out.getvalue()
        for end in range(len("id,s,t"), len(text) + 1):
            path.write_text(text[:end], newline="")
            assert plain(read(path)) == strictly(text[:end]), (seed, text[:end])


WHOLE = {
    "quotes within a value": ('id,s,t\n1,5" pipe,x\n', [["1", '5" pipe', "x"]]),
    "no newline at the end": ("id,s,t\n1,,3", [["1", None, "3"]]),
    "no newline behind the header": ("id,s,t", []),
    "no rows": ("id,s,t\n", []),
    "a row of nulls at the end": ("id,s,t\n1,2,3\n,,\n", [["1", "2", "3"], [None] * 3]),
    "empty texts at the end": ('id,s,t\n"","",""', [["", "", ""]]),
    "empty lines": ("\n\nid,s,t\n\n1,2,3\n\n\n", [["1", "2", "3"]]),
    "a mark of the order of bytes": ('\ufeff"id",s,t\n1,2,3\n', [["1", "2", "3"]]),
    "one column": ("id\n1\n2", [["1"], ["2"]]),
    "carriage returns": ("id,s,t\r1,2,3\r", [["1", "2", "3"]]),
}


@each("case", WHOLE)
def test_a_whole_file_is_read_to_its_end(tmp_path: Path, case: str) -> None:
    text, rows = WHOLE[case]
    path = tmp_path / "x.csv"
    path.write_text(text, newline="")
    assert read(path) == rows
    assert len(read(path, None) or ()) == len(rows)


SECRET = "a line of another file"
REFUSED = {
    "within quotes": (f'id,n,s\n1,2,"{SECRET}\n2,3,d\n', "ends within quotes"),
    "too few fields": (f"id,n,s\n1,2,c\n{SECRET}\n", "a row has 1 fields, and the first line 3"),
    "too many fields": (f"id,n,s\n1,2,3,{SECRET}\n", "a row has 4 fields"),
    "nothing": ("", "Empty"),
    "no rows": (f"{SECRET}\nx\ny\n", "names none of"),
}


@each("case", REFUSED)
def test_a_file_that_is_refused_shows_none_of_its_rows(uri: str, tmp_path: Path, case: str) -> None:
    text, said = REFUSED[case]
    path = tmp_path / "x.csv"
    path.write_text(text)
    fields = [pa.field("id", pa.int64(), False), ("n", pa.int64()), ("s", pa.string())]
    table = mw.create_table(uri, pa.schema(fields), "id")
    with table.writer() as writer, pytest.raises(InvalidCallError, match=said) as caught:
        writer.upsert(path)
    assert SECRET not in str(caught.value) or case == "no rows"
    assert table.count_rows() == 0


LINE = "a line of another file " * 5


@each("name, text", [("x.csv", LINE), ("x.csv", f"id,{LINE}\n1,2"), ("x.json", f'{{"{LINE}": 1}}')])
def test_an_error_shows_no_line_of_a_file_that_has_no_rows(
    uri: str, tmp_path: Path, name: str, text: str
) -> None:
    table = mw.create_table(uri, pa.schema([pa.field("id", pa.int64(), False)]), "id")
    path = tmp_path / name
    path.write_text(text)
    with table.writer() as writer:
        for call in (writer.upsert, writer.insert, writer.apply):
            with pytest.raises(InvalidCallError) as caught:
                call(path)
            assert LINE[:41] not in str(caught.value)
        if "id" not in text:
            with pytest.raises(InvalidCallError) as caught:
                writer.delete(path)
            assert LINE[:41] not in str(caught.value)
