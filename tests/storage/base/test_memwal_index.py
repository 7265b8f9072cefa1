"""The MemWAL index in the base table's manifest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest

from memwal_sql.errors import CorruptFileError
from memwal_sql.storage.base import manifest as lance_manifest
from memwal_sql.storage.base.memwal_index import (
    IndexDetails,
    commit_details,
    read_details,
)
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.open import ObjectStore, open_store
from tests.model.faults import FaultyStore
from tests.model.merging import details_of
from tests.storage.native import KEY

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.float64())])
ROWS = pa.table({"id": [1, 2], "v": [1.0, 2.0]}, SCHEMA)
DETAILS = IndexDetails(
    region_specs=(
        {
            "spec_id": 1,
            "fields": [
                {
                    "field_id": "bucket",
                    "source_ids": [0],
                    "transform": None,
                    "expression": "abs(murmur3(col0)) % 16",
                    "result_type": "int32",
                    "parameters": {"a": "b"},
                }
            ],
        },
    ),
    maintained_indexes=("v_idx",),
    snapshot_ts_millis=12,
    num_regions=2,
    inline_snapshots=b"bytes",
)


def commit(uri: str, **changes: Any) -> tuple[ObjectStore, Any, IndexDetails]:
    dataset = lance.write_dataset(ROWS, lance_uri(uri))
    dataset.create_scalar_index("v", "BTREE")
    dataset = commit_details(dataset, replace(DETAILS, **changes))
    found = read_details(open_store(uri), dataset)
    assert found is not None
    return open_store(uri), dataset, found.details


@pytest.mark.parametrize("scheme", ["local", "memory"])
def test_details_come_back_from_the_version_that_they_were_committed_to(
    tmp_path: Path, scheme: str
) -> None:
    uri = str(tmp_path / "t") if scheme == "local" else f"memory://{uuid4().hex}"
    store, dataset, details = commit(uri)
    assert replace(details, index_uuid=None) == DETAILS
    assert details.index_uuid is not None
    before = lance.dataset(dataset.uri, version=dataset.version - 1)
    assert read_details(store, before) is None


def test_a_commit_replaces_the_entry_and_keeps_unknown_fields(tmp_path: Path) -> None:
    """Protocol rule 1."""
    unknown = b"\x92\x4e\x03abc"  # field 1250
    store, dataset, details = commit(str(tmp_path / "t"), message=unknown)
    dataset = commit_details(dataset, replace(details, num_regions=3))
    found = read_details(store, dataset)
    assert found is not None and found.details.num_regions == 3
    assert unknown in found.details.message
    section = lance_manifest.read_index_section(store, dataset.version)
    assert sorted(index.name for index in section.indices) == ["__lance_mem_wal", "v_idx"]
    assert dataset.mem_wal_index_details()["num_shards"] == 3


def test_progress_of_a_merge_is_read_from_the_commit_of_its_rows(tmp_path: Path) -> None:
    store, dataset, _ = commit(str(tmp_path / "t"))
    (
        dataset.merge_insert("id")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .mark_sstables_as_compacted([lance.CompactedSsTable(str(REGION), 4)])
        .execute(ROWS)
    )
    found = read_details(store, lance.dataset(dataset.uri))
    assert found is not None and found.details.merged_generations == {REGION: 4}
    caught_up = replace(found.details, index_catchup={"v_idx": {REGION: 4}})
    found = read_details(store, commit_details(lance.dataset(dataset.uri), caught_up))
    assert found is not None and found.details.index_catchup == {"v_idx": {REGION: 4}}


class _ShortTails(FaultyStore):
    """Every manifest is larger than the tail that one request reads."""

    def get_tail(self, path: str, length: int) -> Any:
        return self.__getattr__("get_tail")(path, 64)


def test_details_are_one_read_and_large_manifests_a_few(tmp_path: Path) -> None:
    store, dataset, details = commit(str(tmp_path / "t"))
    counting = FaultyStore(store)
    first = read_details(counting, dataset)
    assert counting.calls == {"get_tail": 1}
    counting = _ShortTails(store)
    large = read_details(counting, dataset)
    assert large is not None and first is not None and large.details == details
    assert counting.calls["get_range"] <= 4


def test_another_manifest_has_another_etag(tmp_path: Path) -> None:
    """Protocol rule 16: a version number may come again with other rows."""
    tags = []
    for name in ("a", "b"):
        store, dataset, _ = commit(str(tmp_path / name))
        found = read_details(store, dataset)
        assert found is not None
        tags.append(found.etag)
    assert tags[0] != tags[1]


def test_tables_with_the_old_manifest_names_are_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dataset = lance.write_dataset(ROWS, uri, enable_v2_manifest_paths=False)
    assert (tmp_path / "t/_versions/1.manifest").exists()
    dataset = commit_details(dataset, DETAILS)
    assert read_details(open_store(uri), dataset) is not None


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    store, dataset, _ = commit(str(tmp_path / "t"))
    (path,) = [
        meta.path
        for meta in store.list("_versions")
        if meta.path.endswith(f"{2**64 - 1 - dataset.version}.manifest")
    ]
    for data in (b"", b"short", b"x" * 200, store.get(path)[:-16] + b"\xff" * 12 + b"LANC"):
        store.put(path, data)
        with pytest.raises(CorruptFileError, match="_versions/"):
            read_details(store, dataset)


def test_versions_share_a_tag_of_rows_until_rows_or_columns_change(tmp_path: Path) -> None:
    """Protocol rule 16: what is known of rows outlives commits of indexes, and nothing else."""
    store, dataset, _ = commit(str(tmp_path / "t"))
    tags = [_rows_tag(store, dataset)]
    dataset = commit_details(dataset, details_of(store.uri, dataset))
    dataset.create_scalar_index("id", "BTREE")
    assert _rows_tag(store, dataset) == tags[0]
    for change in (
        lambda: dataset.delete("id = 1"),
        lambda: dataset.insert(ROWS),
        lambda: dataset.add_columns(pa.field("more", pa.int64())),
        lambda: dataset.alter_columns({"path": "more", "name": "less"}),
    ):
        change()
        tags.append(_rows_tag(store, dataset))
    assert len(set(tags)) == len(tags)


def _rows_tag(store: ObjectStore, dataset: Any) -> str:
    found = read_details(store, dataset)
    assert found is not None
    return found.rows_tag
