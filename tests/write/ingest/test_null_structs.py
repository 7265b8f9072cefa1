"""What a child of a NULL struct holds is nobody's to see, before a flush as after it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.write.ingest.null_structs import with_null_children
from tests.model.writing import session_of, upsert_rows

INNER = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), False)])
OUTER = pa.struct([pa.field("inner", INNER), pa.field("z", pa.int64())])


def structs() -> pa.Array:
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])],
        fields=list(INNER),
        mask=pa.array([False, True, False, False]),
    )
    return pa.StructArray.from_arrays(
        [inner, pa.array([7, 8, 9, 10])],
        fields=list(OUTER),
        mask=pa.array([False, False, True, False]),
    )


@pytest.mark.parametrize("start", [0, 1, 2])
def test_children_are_null_where_their_struct_is(start: int) -> None:
    given = structs().slice(start)
    found = with_null_children(given)
    assert found.type == given.type
    assert found.equals(given)
    found.validate(full=True)
    assert found.field("z").to_pylist() == [7, 8, None, 10][start:]
    inner = found.field("inner")
    assert inner.is_null().to_pylist() == [False, True, True, False][start:]
    assert inner.field("x").to_pylist() == [1, None, None, 4][start:]
    assert inner.field("y").to_pylist() == ["a", "b", "c", "d"][start:]


def test_a_child_reads_the_same_before_and_after_a_flush(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "s": OUTER})
    table = mw.create_table(tmp_path / "t", schema, "id")
    context = session_of("t", table)
    query = "SELECT id, s['z'] AS z, s['inner']['x'] AS x FROM t ORDER BY id"
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2, 3, 4], "s": structs()}))
        before = context.sql(query).to_arrow_table().to_pylist()
        writer.flush()
    assert before == context.sql(query).to_arrow_table().to_pylist()
    assert [(row["z"], row["x"]) for row in before] == [(7, 1), (8, None), (None, None), (10, 4)]


@pytest.mark.parametrize("rename", [False, True])
def test_a_null_below_a_null_struct_is_read_from_the_log(tmp_path: Path, rename: bool) -> None:
    """Also where the child admits none: so Spark hands such rows over."""
    inner = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.string(), False)])
    children = [pa.array([1, None], pa.int32()), pa.array(["a", None])]
    valid = pa.py_buffer(b"\x01")
    given = pa.Array.from_buffers(inner, 2, [valid], children=children)
    schema = pa.schema({"id": pa.int64(), "s": inner, "l": pa.list_(inner)})
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), given)
    table = mw.create_table(tmp_path / "t", schema, "id")
    upsert_rows(table, pa.Table.from_arrays([pa.array([1, 2]), given, lists], schema=schema))
    if rename:
        lance.dataset(table.uri).alter_columns({"path": "s.x", "name": "z"})
    found = mw.open_table(table.uri).scan().read_all().sort_by("id")
    name = "z" if rename else "x"
    assert found["s"].to_pylist() == [{name: 1, "y": "a"}, None]
    assert found["l"].to_pylist() == [[{"x": 1, "y": "a"}, None], []]
    for batch in found.to_batches():  # no field ids are left inside
        for column, field in zip(batch.columns, batch.schema, strict=True):
            assert column.type.equals(field.type, check_metadata=True)
