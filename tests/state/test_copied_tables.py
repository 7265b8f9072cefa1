"""Copies that plain Lance makes of a table lack what lies in front of it: nobody takes them for the
table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.details import mark_only
from memwal_sql.storage.base.merge_token import pass_shard, token
from tests.each import each
from tests.interop.native import create_native, native_schema, native_writer
from tests.model.merging import manifests
from tests.model.writing import flush_rows, merge_rows, upsert_rows

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})
Copy = Callable[[Any, str], str]
COPIES: dict[str, Copy] = {
    "deep clone": lambda dataset, to: str(dataset.deep_clone(to, dataset.version).uri),
    "shallow clone": lambda dataset, to: str(dataset.shallow_clone(to, dataset.version).uri),
    "branch": lambda dataset, to: str(dataset.create_branch("other").uri),
}


def _write(table: mw.Table, state: str) -> None:
    merge = merge_rows if "merged" in state else flush_rows
    merge(table, {"id": [1, 2], "v": ["base", "base"]})
    if "logged" in state:
        upsert_rows(table, {"id": [2, 3], "v": ["logged", "logged"]})
    if "snapshot" in state:
        table.snapshot_regions()


@each(
    "how, state",
    [
        *((how, "merged, logged") for how in COPIES),
        ("deep clone", "flushed"),
        ("deep clone", "merged, snapshot"),
        ("shallow clone", "flushed, snapshot"),
    ],
)
def test_a_copy_by_plain_lance_is_refused_until_it_is_enabled(
    how: str, state: str, uri: str
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    _write(table, state)
    rows = table.scan().read_all().sort_by("id").to_pylist()
    base = lance.dataset(uri)
    copy = COPIES[how](base, f"{uri}-copy")
    with pytest.raises(mw.TableReplacedError, match=r"clone or a branch.*enable\(uri\)"):
        mw.open_table(copy)
    with pytest.raises(mw.InvalidCallError, match=r"no regions of this table"):
        mw.open_table(copy, version=base.version)
    with mw.enable(copy) as own:
        assert own.count_rows() == base.count_rows()
        merge_rows(own, {"id": [9], "v": ["own"]})
        assert own.count_rows() == base.count_rows() + 1 and own.check().ok
    with pytest.raises(mw.InvalidCallError, match="has a MemWAL index already"):
        mw.enable(copy)
    assert table.scan().read_all().sort_by("id").to_pylist() == rows and table.check().ok
    assert mw.open_table(copy).context.incarnation != table.context.incarnation


@each("how", COPIES)
@each("buckets", [4, 8])
def test_check_takes_no_version_of_the_source_for_one_of_the_copy(
    how: str, buckets: int, uri: str
) -> None:
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 4)])
    merge_rows(table, {"id": list(range(20)), "v": ["x"] * 20})
    copy = COPIES[how](lance.dataset(uri), f"{uri}-copy")
    with mw.enable(copy, regions=[mw.bucket("id", buckets)]) as own:
        assert not own.check().findings


def _put(uri: str, rows: pa.Table) -> None:
    with native_writer(uri, uuid4()) as writer:
        writer.put(rows)


@each("how", COPIES)
def test_a_copy_of_a_native_table_is_refused_until_it_is_written(how: str, uri: str) -> None:
    """It has no mark of ours: Lance's manifest says that it is a copy."""
    rows = pa.table({"id": [1, 2], "v": ["base", "base"]}, native_schema(SCHEMA, ["id"]))
    create_native(uri, rows, ["id"])
    _put(uri, rows.slice(1).set_column(1, "v", pa.array(["logged"])))
    assert mw.open_table(uri).get(2)["v"].to_pylist() == ["logged"]
    copy = COPIES[how](lance.dataset(uri), f"{uri}-copy")
    with pytest.raises(mw.TableReplacedError, match=r"lacks the folder _mem_wal.*enable\(uri\)"):
        mw.open_table(copy)
    with mw.enable(copy) as own:
        assert own.get(2)["v"].to_pylist() == ["base"] and not own.check().findings
    if how != "branch":  # the name is taken
        copy = COPIES[how](lance.dataset(uri), f"{uri}-other")
        _put(copy, rows.slice(1).set_column(1, "v", pa.array(["own"])))
        with mw.open_table(copy) as table:
            assert table.get(2)["v"].to_pylist() == ["own"]
            assert "clone or a branch" in str(table.check())


def test_a_copy_of_half_a_merge_is_not_enabled(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    flush_rows(table, {"id": [1], "v": ["x"]})
    (region,) = manifests(uri)
    assert mark_only(lance.dataset(uri), {pass_shard(region): token(1, 1)})  # a first pass
    copy = COPIES["deep clone"](lance.dataset(uri), f"{uri}-copy")
    with pytest.raises(mw.InvalidCallError, match="in the middle of a merge"):
        mw.enable(copy)
