"""Field ids inside columns: native code and ours write the same ones, and read each other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.wal.log import Wal
from tests.interop.native import (
    create_native,
    folder_of,
    native_scan,
    native_scan_with_tail,
    native_writer,
)
from tests.model.merging import manifests
from tests.model.writing import upsert_rows

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "s": pa.struct([("n", pa.int32()), ("in", PAIR)]),
        "many": pa.list_(PAIR),
        "v": pa.list_(pa.float32(), 2),
    }
)


def _row(key: int, x: str = "x") -> dict[str, Any]:
    pair = {x: key, "y": f"y{key}"}
    return {"id": key, "s": {"n": key, "in": pair}, "many": [pair, None], "v": [key, 0.5]}


def _rows(*keys: int) -> pa.Table:
    return pa.Table.from_pylist([_row(key) for key in keys], SCHEMA)


def _native(tmp_path: Path) -> tuple[str, Any]:
    """A table with one row in its base and no region, and the columns as native code wants them."""
    uri = folder_of(tmp_path)
    create_native(uri, _rows(0), ["id"], unsharded=True)
    return uri, lance.dataset(uri).schema


def _rename(uri: str) -> None:
    for path in ("s.in.x", "many.item.x"):
        lance.dataset(uri).alter_columns({"path": path, "name": "z"})


def _stored(uri: str) -> pa.Schema:
    """The schema of the newest entry with rows."""
    (region,) = manifests(uri)
    entries = [one.batch for one in Wal(open_store(uri), region).entries(1)]
    return [batch for batch in entries if batch is not None][-1].schema


def test_native_takes_over_our_tail(tmp_path: Path) -> None:
    uri, _ = _native(tmp_path)
    with mw.open_table(uri).writer() as writer:
        writer.upsert(_rows(1, 2))
        writer.flush()
        writer.upsert(_rows(2, 3))
    (region,) = manifests(uri)
    expected = [_row(key) for key in range(4)]
    assert native_scan_with_tail(uri, region).sort_by("id").to_pylist() == expected
    # It has flushed what it took over.
    assert native_scan(uri).sort_by("id").to_pylist() == expected
    assert mw.open_table(uri).scan().read_all().sort_by("id").to_pylist() == expected


def test_entries_have_the_ids_that_native_code_writes(tmp_path: Path) -> None:
    uri, columns = _native(tmp_path)
    upsert_rows(mw.open_table(uri), _rows(1))
    ours = _stored(uri)
    with native_writer(uri, next(iter(manifests(uri)))) as writer:
        writer.put(_rows(2).cast(columns))
    theirs = _stored(uri)
    for name in ("s", "many", "v"):
        assert ours.field(name).equals(theirs.field(name), check_metadata=True)


@pytest.mark.parametrize("flush", [False, True])
def test_what_native_code_wrote_follows_its_fields(tmp_path: Path, flush: bool) -> None:
    uri, columns = _native(tmp_path)
    writer = native_writer(uri, uuid4())
    writer.put(_rows(1, 2).cast(columns))
    if flush:
        writer.close()
    reader = mw.open_table(uri)
    assert reader.scan().read_all().num_rows == 3
    _rename(uri)
    expected = [_row(key, "z") for key in range(3)]
    for handle in (reader, mw.open_table(uri)):
        assert handle.scan().read_all().sort_by("id").to_pylist() == expected
        assert handle.get([2]).to_pylist() == expected[2:]
    with mw.open_table(uri).writer() as ours:
        ours.upsert([{"id": 9}], missing="null")
        ours.flush()
    mw.open_table(uri).merge()
    found = lance.dataset(uri).to_table(filter="id < 9").sort_by("id").to_pylist()
    assert found == expected
