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
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
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
