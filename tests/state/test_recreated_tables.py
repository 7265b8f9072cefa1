"""A table that is deleted and made again at the same place is another table: what this process has
open of the first is none of its own."""

from __future__ import annotations

import shutil
from datetime import timedelta
from typing import Any
from uuid import uuid4

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.interop.native import create_native
from tests.model.process import as_another_process
from tests.model.writing import session_of, upsert_rows

SCHEMA = pa.schema({"id": pa.int64(), "a": pa.string()})


def _session(table: Any) -> datafusion.SessionContext:
    return session_of("t", table)


def _rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().read_all().sort_by("id").to_pylist()
    return found


def test_insert_writes_to_the_table_that_is_there_now(uri: str) -> None:
    first = mw.create_table(uri, SCHEMA, "id")
    _session(first).sql("INSERT INTO t VALUES (1, 'old'), (2, 'old')").collect()
    shutil.rmtree(uri)
    second = mw.create_table(uri, SCHEMA, "id")
    session = _session(second)
    session.sql("INSERT INTO t VALUES (1, 'new')").collect()
    assert session.sql("SELECT * FROM t").to_pylist() == [{"id": 1, "a": "new"}]
    with as_another_process():
        assert _rows(mw.open_table(uri)) == [{"id": 1, "a": "new"}]
    first.close()
    assert _rows(second) == [{"id": 1, "a": "new"}]


def test_insert_passes_over_a_writer_that_a_program_has_open_for_the_first_table(uri: str) -> None:
    forgotten = mw.create_table(uri, SCHEMA, "id").writer()
    forgotten.upsert({"id": [1], "a": ["old"]})
    shutil.rmtree(uri)
    second = mw.create_table(uri, SCHEMA, "id")
    _session(second).sql("INSERT INTO t VALUES (2, 'new')").collect()
    assert _rows(second) == [{"id": 2, "a": "new"}]
    for _ in range(2):
        with pytest.raises(mw.TableReplacedError, match=r"made again.*open a new writer"):
            forgotten.upsert({"id": [3], "a": ["old"]})
    forgotten.close()
    assert _rows(second) == [{"id": 2, "a": "new"}]


@pytest.mark.parametrize("how", ["create", "enable"])
@pytest.mark.parametrize("durable", [True, False])
def test_a_writer_of_the_first_table_writes_nothing_into_the_second(
    uri: str, how: str, durable: bool
) -> None:
    """Its regions have the same ids, and its next positions may be free there."""
    # No row leaves the buffer by the clock: it would be in the first table, or in its remains.
    forgotten = mw.create_table(uri, SCHEMA, "id").writer(
        durable=durable, wal_flush_interval_s=3600
    )
    forgotten.upsert({"id": [1], "a": ["old"]})
    shutil.rmtree(uri)
    if how == "create":
        second = mw.create_table(uri, SCHEMA, "id")
    else:
        lance.write_dataset(SCHEMA.empty_table(), uri)
        second = mw.enable(uri, "id")
    if durable:
        forgotten.close()
    else:
        with pytest.raises(mw.TableReplacedError, match="1 buffered rows were not written"):
            forgotten.close()
    assert _rows(second) == []
    upsert_rows(second, {"id": [2], "a": ["new"]})
    assert _rows(mw.open_table(uri)) == [{"id": 2, "a": "new"}]
    assert second.check().findings == ()


def test_memtables_of_the_first_table_are_not_read_for_a_region_with_the_same_id(uri: str) -> None:
    region = str(uuid4())
    forgotten = mw.create_table(uri, SCHEMA, "id", regions=mw.manual()).writer(region=region)
    forgotten.upsert({"id": [1], "a": ["old"]})
    shutil.rmtree(uri)
    second = mw.create_table(uri, SCHEMA, "id", regions=mw.manual())
    with second.writer(region=region) as writer:
        writer.upsert({"id": [2], "a": ["new"]})
        assert _rows(second) == [{"id": 2, "a": "new"}]
    assert _rows(second) == [{"id": 2, "a": "new"}]
    assert _rows(mw.open_table(uri)) == [{"id": 2, "a": "new"}]


def test_a_handle_of_the_first_table_writes_nothing(uri: str) -> None:
    """Its region would be one that nobody reads, or one that has the keys a second time."""
    first = mw.create_table(uri, SCHEMA, "id")
    session = _session(first)
    session.sql("INSERT INTO t VALUES (1, 'old')").collect()
    shutil.rmtree(uri)
    second = mw.create_table(uri, SCHEMA, "id")
    assert second.version == first.version
    with pytest.raises(mw.ReopenError, match="open it again"), mw.memwal_errors():
        session.sql("INSERT INTO t VALUES (2, 'old')").collect()
    with pytest.raises(mw.ReopenError, match="open it again"):
        first.writer()
    with pytest.raises(mw.ReopenError, match="open it again"):
        mw.register(session, "t", first)
    assert _rows(second) == []
    assert second.check().findings == ()


def test_the_full_check_of_readers_notices_another_table_at_the_same_version(uri: str) -> None:
    first = mw.create_table(uri, SCHEMA, "id")
    shutil.rmtree(uri)
    mw.create_table(uri, SCHEMA, "id")
    with pytest.raises(mw.ReopenError, match="open it again"):
        first.tracker.reload()


def test_a_table_that_native_code_made_again_is_another_one_too(uri: str) -> None:
    """It has no incarnation, and regions with the same ids."""
    rows = pa.table({"id": [0], "a": ["base"]}, SCHEMA)
    create_native(uri, rows, ["id"], unsharded=True)
    first = mw.open_table(uri)
    session = _session(first)
    session.sql("INSERT INTO t VALUES (1, 'old')").collect()
    shutil.rmtree(uri)
    create_native(uri, rows, ["id"], unsharded=True)
    second = mw.open_table(uri)
    _session(second).sql("INSERT INTO t VALUES (2, 'new')").collect()
    expected = [{"id": 0, "a": "base"}, {"id": 2, "a": "new"}]
    assert _rows(second) == expected
    with as_another_process():
        assert _rows(mw.open_table(uri)) == expected
    with pytest.raises(mw.ReopenError, match="open it again"), mw.memwal_errors():
        session.sql("INSERT INTO t VALUES (3, 'old')").collect()


def test_a_table_of_native_code_stays_the_same_when_its_first_version_is_cleaned_up(
    uri: str,
) -> None:
    rows = pa.table({"id": [0], "a": ["base"]}, SCHEMA)
    create_native(uri, rows, ["id"], unsharded=True)
    table = mw.open_table(uri)
    session = _session(table)
    session.sql("INSERT INTO t VALUES (1, 'x')").collect()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert table.tracker.reload().version == table.version
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    session.sql("INSERT INTO t VALUES (2, 'x')").collect()
    assert [row["id"] for row in _rows(table)] == [0, 1, 2]
    assert [row["id"] for row in _rows(mw.open_table(uri))] == [0, 1, 2]


@pytest.mark.parametrize("has_read", [True, False])
def test_a_table_with_the_same_version_number_is_told_by_its_regions(
    uri: str, has_read: bool
) -> None:
    """Names of versions tell nothing; but regions are gone, and there are others."""

    def make(text: str) -> mw.Table:
        table = mw.create_table(uri, SCHEMA, "id")
        with table.writer() as writer:
            writer.upsert({"id": [1], "a": [text]})
            writer.flush()
            table.merge()
            writer.upsert({"id": [2], "a": [text]})
        return table

    make("old")
    reader = mw.open_table(uri)
    if has_read:
        assert len(_rows(reader)) == 2
    shutil.rmtree(uri)
    make("new")
    assert lance.dataset(uri).version == reader.version
    with as_another_process():
        for _ in range(2):
            with pytest.raises(mw.ReopenError):
                _rows(reader)
            with pytest.raises(mw.ReopenError):
                reader.get([1])
            with pytest.raises(mw.ReopenError):
                _session(reader).sql("SELECT * FROM t").collect()


def test_a_table_without_its_key_column_is_one_again_when_the_version_before_is_restored(
    uri: str,
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    upsert_rows(table, {"id": [1, 2], "a": ["x", "y"]})
    with table.writer() as writer:
        writer.upsert({"id": [2], "a": ["z"]})
        writer.flush()
    table.merge()
    whole = lance.dataset(uri)
    lance.dataset(uri).drop_columns(["id"])
    with pytest.raises(mw.InvalidCallError, match="open_table"):
        mw.enable(uri, primary_key="a")
    with pytest.raises(mw.RepairError, match=r"version=N\)\.restore"):
        mw.open_table(uri)
    lance.dataset(uri, version=whole.version).restore()
    assert _rows(mw.open_table(uri)) == [{"id": 1, "a": "x"}, {"id": 2, "a": "z"}]
