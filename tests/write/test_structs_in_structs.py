"""Structs within structs go to Lance and DataFusion from the middle of a batch, too."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.model.writing import session_of

KIND = pa.struct([("b", pa.struct([("c", pa.string()), ("d", pa.struct([("e", pa.int32())]))]))])
SCHEMA = pa.schema({"id": pa.int64(), "s": KIND, "l": pa.list_(KIND)})


def _rows(count: int) -> pa.Table:
    values = [{"b": {"c": f"c{i}", "d": {"e": i}}} if i % 5 else None for i in range(count)]
    lists = [[value, value] for value in values]
    return pa.table({"id": range(count), "s": values, "l": lists}, SCHEMA)


@pytest.mark.parametrize("regions", [None, [mw.bucket("id", 3)]])
def test_slices_are_read_before_and_after_a_flush(tmp_path: Path, regions: object) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions)  # type: ignore[arg-type]
    context = session_of("t", table)
    expected = _rows(40).slice(7).to_pylist()

    def check() -> None:
        assert table.scan().read_all().sort_by("id").to_pylist() == expected
        found = context.sql("SELECT * FROM t ORDER BY id").to_arrow_table()
        assert found.to_pylist() == expected
        one = context.sql("SELECT s['b']['d']['e'] AS e FROM t WHERE id = 23").to_arrow_table()
        assert one.to_pylist() == [{"e": 23}]
        assert table.get(23).to_pylist() == [expected[23 - 7]]

    with table.writer() as writer:
        writer.upsert(_rows(40).slice(7))
        check()
        writer.flush()
        check()
    table.merge()
    check()
