"""What errors say of names in expressions that are no columns of the row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "Name": pa.string(),
        "place": pa.struct({"City": pa.string()}),
        "n": pa.int64(),
    }
)
ROW = {"id": 1, "Name": "b", "place": {"City": "Oslo"}, "n": 1}
QUOTED = r'there is no column \'{}\': names without double quotes are .* write "{}"'
NAME, CITY = QUOTED.format("name", "Name"), QUOTED.format("city", "City")
TEXT = r"there is no column 'oslo'; the row has \['id', 'Name', 'place', 'n'\].*quotes: 'oslo'"


def upsert(**options: Any) -> Callable[[mw.Table, mw.TableWriter], object]:
    return lambda _, writer: writer.upsert([ROW], **options)


@each(
    "call, words",
    [
        (upsert(when="t.Name <> s.Name"), NAME),
        (upsert(set={"Name": "s.Name || 'x'"}), NAME),
        (upsert(when="t.place.City = 'x'"), CITY),
        (upsert(when="t.Oslo = 1"), TEXT),
        (upsert(when="Name = 'a'"), "write t.name for a column of the existing row"),
        (lambda _, w: w.delete([1], when="t.Name = 'z'"), NAME),
        (lambda _, w: w.apply([{**ROW, "_op": "upsert"}], when="t.Name <> s.Name"), NAME),
        (lambda _, w: w.update({"Name": "upper(Name)"}), NAME),
        (lambda _, w: w.update({"Name": "Oslo"}), TEXT),
        (lambda _, w: w.delete_where("Name = 'z'"), '"Name"'),
        (lambda t, _: t.add_columns({"u": "upper(Name)"}), NAME),
        (lambda t, _: t.add_columns({"u": "Oslo"}), TEXT),
    ],
)
def test_an_unknown_name_says_how_to_write_it(
    tmp_path: Path, call: Callable[[mw.Table, mw.TableWriter], object], words: str
) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert([ROW])
        with pytest.raises(mw.InvalidCallError, match=words) as raised:
            call(table, writer)
        assert "struct" not in str(raised.value)
    assert table.get(1).to_pylist() == [ROW]
