"""Log entries whose nested fields have no ids, as older versions wrote them."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.wal.log import Wal, encode_entry
from tests.model.merging import manifests
from tests.model.writing import upsert_rows

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema({"id": pa.int64(), "s": PAIR, "many": pa.list_(PAIR)})
ROW = {"id": 1, "s": {"x": 5, "y": "a"}, "many": [{"x": 6, "y": "b"}]}


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """One row, in the log."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    upsert_rows(table, [ROW])
    (region,) = manifests(table.uri)
    wal = Wal(open_store(table.uri), region)
    for entry in wal.entries(1):
        if entry.batch is not None and entry.generation is not None:
            plain = [
                field.with_type(SCHEMA.field(field.name).type)
                if field.name in SCHEMA.names
                else field
                for field in entry.batch.schema
            ]
            columns = [c.view(f.type) for c, f in zip(entry.batch.columns, plain, strict=True)]
            batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(plain))
            data = encode_entry(batch, writer_epoch=entry.writer_epoch, generation=entry.generation)
            (Path(table.uri) / wal.path(entry.position)).write_bytes(data)
    return mw.open_table(table.uri)


def test_they_go_by_name(table: mw.Table) -> None:
    assert table.scan().read_all().to_pylist() == [ROW]
    lance.dataset(table.uri).add_columns(pa.field("s", pa.struct([("q", pa.int64())])))
    added = {**ROW, "s": {"x": 5, "y": "a", "q": None}}
    assert mw.open_table(table.uri).get([1]).to_pylist() == [added]


def test_dropped_fields_are_left_out(table: mw.Table) -> None:
    lance.dataset(table.uri).drop_columns(["s.x", "many.item.y"])
    left = {"id": 1, "s": {"y": "a"}, "many": [{"x": 6}]}
    assert mw.open_table(table.uri).scan().read_all().to_pylist() == [left]
    assert mw.open_table(table.uri).get([1]).to_pylist() == [left]


@pytest.mark.parametrize(("path", "column"), [("s.x", "s"), ("many.item.x", "many")])
def test_renamed_fields_are_an_error_until_they_are_named_back(
    table: mw.Table, path: str, column: str
) -> None:
    rename = {"path": path, "name": "z"}
    back = {"path": path[:-1] + "z", "name": "x"}
    lance.dataset(table.uri).alter_columns(rename)
    told = rf"wal/.*arrow: the fields \['x'\] of column {column!r} .*\['z'\].*names that they had"
    for call in (
        lambda: table.scan().read_all(),
        lambda: table.get([1]),
        lambda: table.changes().read_all(),
        lambda: table.writer().upsert([{"id": 2}], missing="null"),
    ):
        with pytest.raises(mw.RepairError, match=told):
            call()
    (found,) = [f for f in table.check().findings if f.check == "wal"]
    assert "give the fields the names that they had" in found.remedy

    lance.dataset(table.uri).alter_columns(back)
    with mw.open_table(table.uri).writer() as writer:
        writer.upsert([{"id": 2}], missing="null")
        writer.flush()
    lance.dataset(table.uri).alter_columns(rename)
    (row,) = mw.open_table(table.uri).get([1]).to_pylist()
    inner = row[column]
    assert (inner if column == "s" else inner[0])["z"] == (5 if column == "s" else 6)
