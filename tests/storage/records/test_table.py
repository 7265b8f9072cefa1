"""Our own state of a table, and which table the regions belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

from memwal_sql.errors import TableReplacedError
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.records.table import (
    INCARNATION_KEY,
    Records,
    check_incarnation,
    read_record,
    write_record,
)
from tests.model.faults import Fault, FaultyStore, Kind
from tests.storage.native import KEY
from tests.write.hooked_store import Call, HookedStore


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid4().hex}")


def test_the_newest_incarnation_is_read(store: ObjectStore) -> None:
    assert read_record(store) is None
    for _ in range(2):
        incarnation = uuid4()
        write_record(store, incarnation, read_record(store))
        found = read_record(store)
        assert found is not None and found.incarnation == incarnation


@pytest.mark.parametrize("kind", [None, Kind.LOST_REPLY, Kind.FALSE_EXISTS, Kind.TIMEOUT])
@pytest.mark.parametrize("kept", [1, 2, 3])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_number_among_those_that_were_deleted_is_never_won(
    store: ObjectStore, number: int, kept: int, kind: Kind | None, no_pauses: None
) -> None:
    """Protocol rule 8: who slept past it would otherwise believe what nobody reads any more. The
    highest one that was deleted is right below one that is there."""
    records, last = Records(store, "collected"), 4 + kept
    for version in range(1, last + 1):
        assert records.put(version, {"n": version}) is None
    records.delete(range(1, 5))
    faulty = FaultyStore(store, [] if kind is None else [Fault("put_if_absent", kind)])
    found = Records(faulty, "collected").put(number, {"n": 20})
    faulty.check()
    assert found is not None and (found.version, found.content["n"]) == (last, last)
    assert records.versions() == list(range(5, last + 1))
    assert records.put(last + 1, {"n": last + 1}) is None


def test_a_number_is_won_also_by_who_is_overtaken_at_once(store: ObjectStore) -> None:
    records = Records(store, "collected")
    assert records.put(1, {"n": 1}) is None

    def overtaken(operation: str, path: str, call: Call) -> Any:
        found = call()
        if operation == "put_if_absent":
            assert records.put(3, {"n": 3}) is None
        return found

    assert Records(HookedStore(store, overtaken), "collected").put(2, {"n": 2}) is None
    assert records.versions() == [1, 2, 3]


def make_table(path: Path) -> tuple[ObjectStore, Any]:
    store, incarnation = open_store(path), uuid4()
    schema = pa.schema(
        [pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.float64())],
        {INCARNATION_KEY: str(incarnation).encode()},
    )
    rows = pa.table({"id": [1, 2], "v": [1.0, 2.0]}, schema)
    lance.write_dataset(rows, str(path)).initialize_mem_wal(unsharded=True)
    write_record(store, incarnation, read_record(store))
    return store, rows


def check(store: ObjectStore) -> None:
    dataset = lance.dataset(store.uri)
    has_index = read_details(store, dataset) is not None
    check_incarnation(store, dataset.schema.metadata, has_index=has_index)


def test_ordinary_commits_keep_the_incarnation(tmp_path: Path) -> None:
    """Protocol rule 22."""
    store, rows = make_table(tmp_path / "t")
    lance.dataset(store.uri).merge_insert("id").when_matched_update_all().execute(rows)
    (
        lance.dataset(store.uri)
        .merge_insert("id")
        .when_matched_update_all()
        .mark_sstables_as_compacted([lance.CompactedSsTable(str(uuid4()), 1)])
        .execute(rows)
    )
    lance.dataset(store.uri).create_scalar_index("id", "BTREE")
    lance.write_dataset(rows.slice(0, 0).replace_schema_metadata(None), store.uri, mode="append")
    lance.dataset(store.uri).delete("id = 1")
    lance.dataset(store.uri).optimize.compact_files()
    lance.dataset(store.uri).optimize.optimize_indices()
    lance.dataset(store.uri).add_columns(pa.field("new", pa.int32()))
    check(store)


@pytest.mark.parametrize("keep_metadata", [False, True])
def test_an_overwritten_table_is_noticed(tmp_path: Path, keep_metadata: bool) -> None:
    """Protocol rule 22: also when the rows were read from the table, schema metadata and all."""
    store, rows = make_table(tmp_path / "t")
    check(store)
    kept = rows if keep_metadata else rows.replace_schema_metadata(None)
    lance.write_dataset(kept, store.uri, mode="overwrite")
    with pytest.raises(TableReplacedError, match="restore"):
        check(store)


def test_an_index_of_another_incarnation_is_noticed(tmp_path: Path) -> None:
    """Protocol rule 22: overwritten, and given a new index."""
    store, rows = make_table(tmp_path / "t")
    lance.write_dataset(rows.replace_schema_metadata(None), store.uri, mode="overwrite")
    lance.dataset(store.uri).initialize_mem_wal(unsharded=True)
    with pytest.raises(TableReplacedError, match="overwritten"):
        check(store)


def test_a_table_of_native_code_has_no_record_and_passes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    check_incarnation(store, None, has_index=True)
