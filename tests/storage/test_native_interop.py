"""Pylance's own MemWAL reads what we write, and we read what it writes (protocol rule 2)."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from memwal_sql.storage import paths
from memwal_sql.storage.base.field_ids import field_ids
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.generation.pk_index import write_pk_index
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_entry, encode_fence
from tests.storage import native

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False, native.KEY),
        pa.field("v", pa.float64()),
        pa.field("s", pa.string()),
    ]
)


def make_base(path: Path) -> lance.LanceDataset:
    return native.base_table(
        path,
        pa.table({"id": [1, 2, 3, 4], "v": [1.0, 2.0, 3.0, 4.0], "s": list("abcd")}, SCHEMA),
    )


def test_native_scan_and_lookup_read_our_generations_and_manifest(tmp_path: Path) -> None:
    """Upserts, deletes and a key that comes back, over two generations."""
    base = make_base(tmp_path / "t")
    store = open_store(tmp_path / "t")
    manifests = RegionManifests(store, REGION)
    created = manifests.create(RegionManifest(REGION, region_spec_id=1))
    one = native.write(
        store,
        base,
        REGION,
        1,
        native.rows(base, {"id": [2, 9], "v": [20.0, 90.0], "s": ["x", "y"]}, {"id": [3, 4]}),
        ["id"],
    )
    two = native.write(
        store,
        base,
        REGION,
        2,
        native.rows(base, {"id": [4, 9], "v": [40.0, 91.0], "s": ["z", "w"]}, {"id": [1]}),
        ["id"],
    )
    manifest = manifests.commit(created, current_generation=3, flushed_generations=(one, two))
    expected = [
        {"id": 2, "v": 20.0, "s": "x"},
        {"id": 4, "v": 40.0, "s": "z"},
        {"id": 9, "v": 91.0, "s": "w"},
    ]
    assert native.scan(base, manifest) == expected
    for row in expected:
        assert native.lookup(base, manifest, pa.array([row["id"]], pa.int64())) == [row]
    for gone in (1, 3, 77):
        assert native.lookup(base, manifest, pa.array([gone], pa.int64())) == []


def test_native_writer_takes_up_our_region_with_its_unflushed_tail(tmp_path: Path) -> None:
    base = make_base(tmp_path / "t")
    store = open_store(tmp_path / "t")
    manifests, wal = RegionManifests(store, REGION), Wal(store, REGION)
    created = manifests.create(RegionManifest(REGION, region_spec_id=1))
    one = native.write(
        store, base, REGION, 1, native.rows(base, {"id": [2], "v": [20.0], "s": ["x"]}, {}), ["id"]
    )
    manifests.commit(
        created,
        writer_epoch=1,
        current_generation=2,
        replay_after_wal_entry_position=1,
        wal_entry_position_last_seen=1,
        flushed_generations=(one,),
    )
    tail = native.rows(base, {"id": [2, 7], "v": [21.0, 70.0], "s": ["y", "n"]}, {"id": [3]})
    batches = tail.combine_chunks().to_batches()
    first = encode_entry(batches[0].slice(0, 0), writer_epoch=1, generation=1)
    assert wal.append(1, first).landed
    assert wal.append(2, encode_fence(writer_epoch=1)).landed
    third = encode_entry(batches[0], writer_epoch=1, generation=2, batch_id="q:7")
    assert wal.append(3, third).landed

    with base.mem_wal_writer(str(REGION)) as writer:
        table = writer.lsm_scanner().to_table().sort_by("id")
        assert table.to_pylist() == [
            {"id": 1, "v": 1.0, "s": "a"},
            {"id": 2, "v": 21.0, "s": "y"},
            {"id": 4, "v": 4.0, "s": "d"},
            {"id": 7, "v": 70.0, "s": "n"},
        ]
    after = manifests.latest()
    assert after.writer_epoch == 2
    assert after.region_spec_id == 1


def test_we_read_native_manifests_entries_and_fences(tmp_path: Path) -> None:
    base = make_base(tmp_path / "t")
    with base.mem_wal_writer(str(REGION)) as writer:
        writer.put(pa.table({"id": [1, 5], "v": [10.0, 50.0], "s": ["q", None]}, SCHEMA))
        writer.delete(pa.table({"id": [2]}, pa.schema([SCHEMA.field(0)])))
    store = open_store(tmp_path / "t")
    manifest = RegionManifests(store, REGION).latest()
    assert (manifest.region_id, manifest.version, manifest.writer_epoch) == (REGION, 2, 1)
    assert (manifest.current_generation, manifest.region_spec_id) == (2, 1)
    assert manifest.status is RegionStatus.ACTIVE
    assert manifest.region_values is None
    (flushed,) = manifest.flushed_generations
    assert (flushed.generation, flushed.rows) == (1, 3)
    assert paths.parse_generation_name(flushed.path) == 1
    wal = Wal(store, REGION)
    entries = list(wal.entries(1))
    data = [one for one in entries if not one.is_fence]
    assert [one.generation for one in data] == [1] * len(data)
    seen = pa.Table.from_batches([one.batch for one in data if one.batch is not None])
    assert seen["id"].to_pylist() == [1, 5, 2]
    assert seen["_tombstone"].to_pylist() == [False, False, True]
    assert seen.column_names[-1] == "_tombstone"

    with base.mem_wal_writer(str(REGION)):
        pass
    fences = [one for one in wal.entries(1) if one.is_fence]
    assert fences and fences[-1].writer_epoch == 2


def test_a_generation_carries_the_field_ids_of_a_base_that_changed(tmp_path: Path) -> None:
    """Protocol rule 2: native readers resolve the columns of a generation by field id."""
    schema = pa.schema(
        [
            *SCHEMA,
            pa.field("gone", pa.int32()),
            pa.field("nested", pa.struct([pa.field("l", pa.list_(pa.string()))])),
        ]
    )
    table = pa.table(
        {"id": [1], "v": [1.0], "s": ["a"], "gone": [1], "nested": [{"l": ["x"]}]}, schema
    )
    lance.write_dataset(table, str(tmp_path / "t")).drop_columns(["gone"])
    base = lance.dataset(str(tmp_path / "t"))
    base.add_columns(pa.field("new", pa.int64()))
    base.initialize_mem_wal(unsharded=True)
    store = open_store(tmp_path / "t")
    ids = field_ids(base)
    written = native.write(
        store,
        base,
        REGION,
        1,
        native.rows(
            base,
            {"id": [1, 2], "v": [10.0, 2.0], "s": ["b", "c"], "nested": [{"l": ["y"]}, None]},
            {},
        ),
        ["id"],
    )
    uri = paths.generation_uri(str(tmp_path / "t"), REGION, written.path)
    generation = lance.dataset(uri)
    assert field_ids(generation) == {**ids, "_tombstone": max(ids.values()) + 1}
    native_region = str(uuid4())
    with base.mem_wal_writer(native_region) as writer:
        writer.put(pa.table({name: [None] for name in ids} | {"id": [5]}, base.schema))
    theirs = RegionManifests(store, UUID(native_region)).latest().flushed_generations[0]
    their_uri = paths.generation_uri(str(tmp_path / "t"), UUID(native_region), theirs.path)
    assert field_ids(lance.dataset(their_uri)) == field_ids(generation)
    manifest = RegionManifest(REGION, current_generation=2, flushed_generations=(written,))
    assert [row["nested"] for row in native.scan(base, manifest)] == [{"l": ["y"]}, None]


COMPOSITE = [
    pa.array([1, -2, 3, 3], pa.int32()),
    pa.array(["q", "", "a\0b", "a"]),
    pa.array([b"\0", b"\xff\0", b"", b"z"], pa.binary()),
    pa.array([7, 2**63, 0, 1], pa.uint64()),
    pa.array([True, False, True, False]),
]


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_our_primary_key_index_equals_the_native_one(tmp_path: Path, columns: int) -> None:
    names = [f"k{i}" for i in range(columns)]
    schema = pa.schema(
        [
            pa.field(name, column.type, False, native.key_metadata(i))
            for i, (name, column) in enumerate(zip(names, COMPOSITE, strict=False), 1)
        ]
    )
    table = pa.table(COMPOSITE[:columns], schema=schema)
    table = table.slice(0, 3) if columns == 1 else table
    base = native.base_table(tmp_path / "t", table.slice(0, 0))
    with base.mem_wal_writer(str(REGION)) as writer:
        writer.put(table)
    store = open_store(tmp_path / "t")
    theirs = RegionManifests(store, REGION).latest().flushed_generations[0]
    native_folder = tmp_path / "t" / paths.generation_folder(REGION, theirs.path) / "_pk_index"
    write_pk_index(str(tmp_path / "ours"), table, names, version=base.data_storage_version)
    for name in ("page_data.lance", "page_lookup.lance"):
        expected = LanceFileReader(str(native_folder / name)).read_all().to_table()
        found = LanceFileReader(str(tmp_path / "ours" / name)).read_all().to_table()
        assert found.schema.equals(expected.schema, check_metadata=True)
        assert found.equals(expected)


def test_native_reads_generations_of_several_index_pages_and_composite_keys(tmp_path: Path) -> None:
    count = 20_000
    schema = pa.schema(
        [
            pa.field("a", pa.int32(), False, native.key_metadata(1)),
            pa.field("b", pa.string(), False, native.key_metadata(2)),
            pa.field("v", pa.int64()),
        ]
    )
    numbers = np.arange(count)
    keys = {"a": (numbers % 100).tolist(), "b": [f"k{n}" for n in numbers]}
    base = native.base_table(
        tmp_path / "t", pa.table(keys | {"v": numbers}, schema).slice(0, count // 2)
    )
    store = open_store(tmp_path / "t")
    newer = native.rows(base, {**keys, "v": (numbers + count).tolist()}, {})
    written = native.write(store, base, REGION, 1, newer, ["a", "b"])
    manifest = RegionManifest(REGION, current_generation=2, flushed_generations=(written,))
    found = native.scan(base, manifest, "v")
    assert [row["v"] for row in found] == list(range(count, 2 * count))


def test_our_details_are_those_that_native_code_reports(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "v": [1.0], "s": ["a"]}, SCHEMA)
    base = lance.write_dataset(table, str(tmp_path / "t"))
    store = open_store(tmp_path / "t")
    assert read_details(store, base) is None
    base.create_scalar_index("v", "BTREE")
    base.initialize_mem_wal(bucket_column="id", num_buckets=4, maintained_indexes=["v_idx"])
    found = read_details(store, base)
    assert found is not None
    reported = base.mem_wal_index_details()
    assert list(found.details.maintained_indexes) == reported["maintained_indexes"]
    assert list(found.details.region_specs) == reported["sharding_specs"]
    assert found.details.num_regions == reported["num_shards"]
