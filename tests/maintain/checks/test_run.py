"""`table.check()` finds nothing in a sound table, and each kind of damage where it is."""

from __future__ import annotations

import json
import re
import shutil
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.schema import LanceSchema

import memwal_sql as mw
from exec_nodes.keys.bloom import BloomFilter
from memwal_sql.maintain.checks.findings import FINDINGS, Severity
from memwal_sql.maintain.checks.keys import KeysInMemory
from memwal_sql.storage import paths
from memwal_sql.storage.base.memwal_index import commit_details, read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.gc_watermarks import Watermark, raise_watermarks
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest, RegionStatus
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal, encode_entry, encode_fence
from tests.interop.native import create_native, native_writer
from tests.maintain.life import NOW, SCHEMA, collect, create, flush, merge_all, rows, values
from tests.model.folder_state import folder_state
from tests.model.merging import manifests
from tests.model.writing import flush_rows
from tests.soak import IS_SOAK, usual

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two regions: generation 1 merged, 2 and 3 not, two WAL entries above; a record of the
    regions and a checkpoint."""
    folder = tmp_path_factory.mktemp("template")
    table = create(folder, regions=2)
    flush(table, rows(0, 19, 1))
    merge_all(table)
    with table.writer() as writer:
        for n in (2, 3):
            writer.upsert(rows(10 * n, 10 * n + 15, n))
            writer.flush()
        table.snapshot_regions()
        writer.upsert(rows(60, 69, 4))
        table.checkpoint("c")
        writer.upsert(rows(60, 69, 5))
    return folder / "t"


@pytest.fixture(scope="module")
def sound(template: Path) -> set[tuple[str, str]]:
    """What a check says of the table before any damage: a check changes nothing."""
    return {(one.check, one.what) for one in mw.open_table(template).check()}


@dataclass
class Site:
    """A copy of the table, and one of its regions."""

    folder: Path
    region: UUID

    @property
    def uri(self) -> str:
        return str(self.folder)

    @property
    def store(self) -> ObjectStore:
        return open_store(self.uri)

    @property
    def manifest(self) -> RegionManifest:
        return RegionManifests(self.store, self.region).latest()

    def file(self, path: str) -> Path:
        return self.folder / path

    def commit(self, **changes: Any) -> None:
        RegionManifests(self.store, self.region).commit(self.manifest, **changes)

    def generation(self, number: int) -> Path:
        flushed = next(g for g in self.manifest.flushed_generations if g.generation == number)
        return self.file(paths.generation_folder(self.region, flushed.path))

    def wal(self, above: int) -> Path:
        """The WAL entry so many positions above the flushed ones."""
        position = self.manifest.replay_after_wal_entry_position + above
        return self.file(paths.wal_path(self.region, position))

    def details(self, **changes: Any) -> None:
        dataset = lance.dataset(self.uri)
        found = read_details(self.store, dataset)
        assert found is not None
        commit_details(dataset, replace(found.details, **changes))

    def put_entry(self, data: bytes) -> None:
        wal = Wal(self.store, self.region)
        assert wal.append(max(wal.positions()) + 1, data).landed


@pytest.fixture
def site(template: Path, tmp_path: Path) -> Site:
    shutil.copytree(template, tmp_path / "t")
    return Site(tmp_path / "t", sorted(manifests(str(tmp_path / "t")))[0])


Damage = Callable[[Site], object]
CASES: list[tuple[Damage, Severity, str, str]] = []


def damages(severity: Severity, check: str, text: str) -> Callable[[Damage], Damage]:
    """Register a way to damage a table, and what shall be found."""

    def register(damage: Damage) -> Damage:
        CASES.append((damage, severity, check, text))
        return damage

    return register


# Manifests


@damages(ERROR, "manifests", "versions 3 to 3 are missing between others")
def manifest_gap(site: Site) -> None:
    site.file(paths.manifest_path(site.region, 3)).unlink()


@damages(ERROR, "manifests", "the newest manifest of the region can't be read")
def newest_manifest_cut(site: Site) -> None:
    path = site.file(paths.manifest_path(site.region, site.manifest.version))
    path.write_bytes(path.read_bytes()[:-5])


@damages(WARNING, "manifests", "an old manifest version can't be read")
def old_manifest_cut(site: Site) -> None:
    path = site.file(paths.manifest_path(site.region, 2))
    path.write_bytes(path.read_bytes()[:-5])


@damages(ERROR, "manifests", "writer_epoch goes back from 2")
def epoch_back(site: Site) -> None:
    site.commit(writer_epoch=1)


@damages(INFO, "manifests", "the region has no manifest")
def region_without_manifest(site: Site) -> None:
    store = site.store
    store.put(paths.wal_path(uuid4(), 1), encode_fence(writer_epoch=1))


@damages(WARNING, "manifests", "belongs to region spec 7")
def unknown_spec(site: Site) -> None:
    new = uuid4()
    RegionManifests(site.store, new).create(RegionManifest(new, region_spec_id=7))


@damages(WARNING, "manifests", "has no region values")
def no_values(site: Site) -> None:
    new = uuid4()
    RegionManifests(site.store, new).create(RegionManifest(new, region_spec_id=1))


# The WAL


@damages(ERROR, "wal", "are missing, and later ones exist")
def wal_hole(site: Site) -> None:
    site.wal(1).unlink()


@damages(ERROR, "wal", "is a folder")
def wal_folder_above(site: Site) -> None:
    site.wal(3).mkdir()


@damages(ERROR, "wal", "are missing, and later ones exist")
def wal_folder_below(site: Site) -> None:
    site.wal(1).unlink()
    site.wal(1).mkdir()


@damages(ERROR, "wal", "does not have the checksum that it was written with")
def wal_entry_changed(site: Site) -> None:
    data = bytearray(site.wal(1).read_bytes())
    data[len(data) // 2] ^= 1
    site.wal(1).write_bytes(data)


@damages(ERROR, "wal", "ends within a header")
def wal_entry_cut_below_another(site: Site) -> None:
    data = site.wal(1).read_bytes()
    site.wal(1).write_bytes(data[: len(data) // 2])


@damages(WARNING, "wal", "durable rows may be lost")
def newest_wal_entry_cut(site: Site) -> None:
    data = site.wal(2).read_bytes()
    site.wal(2).write_bytes(data[: len(data) // 2])


@damages(WARNING, "wal", "durable rows may be lost")
def newest_wal_entry_emptied(site: Site) -> None:
    site.wal(2).write_bytes(b"")


@damages(WARNING, "wal", "durable rows may be lost")
def wal_entry_cut_below_a_fence(site: Site) -> None:
    newest_wal_entry_cut(site)
    site.put_entry(encode_fence(writer_epoch=1))


@damages(ERROR, "wal", "was complete before, but is torn")
def noted_wal_entry_cut(site: Site) -> None:
    last = max(Wal(site.store, site.region).positions())
    site.commit(wal_entry_position_last_seen=last)
    newest_wal_entry_cut(site)


@damages(ERROR, "checkpoints", "a WAL entry that it retains can't be read")
def checkpointed_wal_entry_cut(site: Site) -> None:
    site.wal(2).unlink()
    site.wal(1).write_bytes(b"")


@damages(ERROR, "wal", "table.changes() can't read a flushed WAL entry")
def flushed_wal_entry_cut(site: Site) -> None:
    site.wal(-1).write_bytes(site.wal(-1).read_bytes()[:-20])


@damages(ERROR, "wal", "table.changes() can't read a flushed WAL entry")
def last_flushed_wal_entry_emptied(site: Site) -> None:
    site.wal(0).write_bytes(b"")


@damages(ERROR, "wal", "table.changes() can't read a flushed WAL entry")
def flushed_wal_entry_changed(site: Site) -> None:
    data = bytearray(site.wal(-1).read_bytes())
    data[-30] ^= 1
    site.wal(-1).write_bytes(data)


@damages(ERROR, "wal", "table.changes() can't read a flushed WAL entry")
def old_fence_changed(site: Site) -> None:
    path = site.file(paths.wal_path(site.region, 1))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@damages(WARNING, "wal", "table.wal() can't read an old WAL entry")
def fence_cut_below_a_gap(site: Site) -> None:
    site.file(paths.wal_path(site.region, 1)).write_bytes(b"")
    site.file(paths.wal_path(site.region, 2)).unlink()


@damages(ERROR, "wal", "position 99 was seen before, but is missing")
def wal_end_lost(site: Site) -> None:
    site.commit(wal_entry_position_last_seen=99)


@damages(WARNING, "wal", "the last flushed WAL entry, at position")
def flushed_entry_lost(site: Site) -> None:
    site.wal(0).unlink()


@damages(ERROR, "wal", "has writer epoch 99")
def wal_ahead_of_manifest(site: Site) -> None:
    site.put_entry(encode_fence(writer_epoch=99))


@damages(ERROR, "wal", "belongs to generation 99")
def wal_generation_skipped(site: Site) -> None:
    schema = entry_schema(SCHEMA, LanceSchema.from_pyarrow(SCHEMA))
    batch = pa.record_batch([pa.array([1]), pa.array([1]), pa.array([False])], schema=schema)
    site.put_entry(encode_entry(batch, writer_epoch=2, generation=99))


@damages(ERROR, "wal", "the WAL entry may be another region's")
def wal_entry_of_another_region(site: Site) -> None:
    other = Site(site.folder, sorted(manifests(site.uri))[1])
    shutil.copyfile(other.wal(1), site.wal(1))


# Generations


@damages(ERROR, "generations", "the folder of generation 2 is missing")
def generation_lost(site: Site) -> None:
    shutil.rmtree(site.generation(2))


@damages(WARNING, "generations", "the folder of generation 1 is missing; its rows are in the base")
def merged_generation_lost(site: Site) -> None:
    shutil.rmtree(site.generation(1))


@damages(ERROR, "generations", "generations [2] are in no manifest")
def generation_not_listed(site: Site) -> None:
    kept = [one for one in site.manifest.flushed_generations if one.generation != 2]
    site.commit(flushed_generations=tuple(kept))


@damages(ERROR, "generations", "lists generations twice: [1, 2, 3, 3]")
def generation_twice(site: Site) -> None:
    listed = site.manifest.flushed_generations
    site.commit(flushed_generations=(*listed, FlushedGeneration(3, "00000000_gen_3")))


@damages(ERROR, "generations", "generation 2 can't be read")
def data_file_cut(site: Site) -> None:
    (path,) = (site.generation(2) / "data").iterdir()
    path.write_bytes(path.read_bytes()[:-30])


@damages(ERROR, "generations", "generation 2 can't be read")
def lance_manifest_lost(site: Site) -> None:
    shutil.rmtree(site.generation(2) / "_versions")


@damages(ERROR, "generations", "instead of 1000")
def other_row_count(site: Site) -> None:
    changed = [
        replace(one, rows=1000) if one.generation == 2 else one
        for one in site.manifest.flushed_generations
    ]
    site.commit(flushed_generations=tuple(changed))


@damages(ERROR, "generations", "it has no column '_tombstone'")
def column_lost(site: Site) -> None:
    lance.dataset(str(site.generation(2))).drop_columns(["_tombstone"])


# Bloom filters


@damages(ERROR, "generations", "is not there")
def bloom_lost(site: Site) -> None:
    (site.generation(2) / "bloom_filter.bin").unlink()


@damages(ERROR, "generations", "not a whole number of 32-byte blocks")
def bloom_cut(site: Site) -> None:
    path = site.generation(2) / "bloom_filter.bin"
    path.write_bytes(path.read_bytes()[:-1])


@damages(ERROR, "generations", "zeros only")
def bloom_blank(site: Site) -> None:
    path = site.generation(2) / "bloom_filter.bin"
    path.write_bytes(bytes(len(path.read_bytes())))


@damages(ERROR, "generations", "the bloom filter lacks")
def bloom_of_another_key(site: Site) -> None:
    other = BloomFilter.build(np.array([1], np.uint64)).data
    (site.generation(2) / "bloom_filter.bin").write_bytes(other)
    changed = [
        replace(one, bloom_checksum=zlib.crc32(other)) if one.generation == 2 else one
        for one in site.manifest.flushed_generations
    ]
    site.commit(flushed_generations=tuple(changed))


# Indexes of generations


@damages(ERROR, "generations", "the index 'id_idx' of generation 2 can't be read")
def index_lost(site: Site) -> None:
    for path in (site.generation(2) / "_indices").glob("*/page_lookup.lance"):
        path.unlink()


@damages(ERROR, "generations", "a btree of generation 2 can't be read")
def btree_lost(site: Site) -> None:
    shutil.rmtree(site.generation(2) / "_indices")


@damages(WARNING, "generations", "of generation 2 covers")
def index_behind(site: Site) -> None:
    generation = lance.dataset(str(site.generation(2)))
    lance.write_dataset(generation.to_table().slice(0, 1), generation, mode="append")


@damages(ERROR, "generations", "a btree of generation 2 lacks")
def btree_of_other_rows(site: Site) -> None:
    for old in (site.generation(2) / "_indices").glob("*/page_data.lance"):
        (new,) = (site.generation(3) / "_indices").glob("*/page_data.lance")
        shutil.copyfile(new, old)


@damages(ERROR, "generations", "a btree of generation 2 lacks")
def native_btree_of_other_rows(site: Site) -> None:
    page = "_pk_index/page_data.lance"
    shutil.copyfile(site.generation(3) / page, site.generation(2) / page)


@damages(ERROR, "generations", "a btree of generation 2 can't be read")
def native_btree_lookup_cut(site: Site) -> None:
    path = site.generation(2) / "_pk_index/page_lookup.lance"
    path.write_bytes(path.read_bytes()[:100])


@damages(ERROR, "generations", "a btree of generation 2 can't be read")
def native_btree_lookup_lost(site: Site) -> None:
    (site.generation(2) / "_pk_index/page_lookup.lance").unlink()


@damages(ERROR, "generations", "a btree of generation 2 can't be read")
def native_btree_data_lost(site: Site) -> None:
    (site.generation(2) / "_pk_index/page_data.lance").unlink()


@damages(ERROR, "generations", "has other keys in its pages than its lookup table says")
def btree_lookup_of_other_rows(site: Site) -> None:
    page = "_pk_index/page_lookup.lance"
    shutil.copyfile(site.generation(3) / page, site.generation(2) / page)


# Keys


@damages(ERROR, "base keys", "2 keys occur more than once, such as {'id': 0}")
def key_twice_in_the_base(site: Site) -> None:
    dataset = lance.dataset(site.uri)
    lance.write_dataset(rows(0, 1, 9).cast(dataset.schema), dataset, mode="append")


@damages(ERROR, "region keys", "belong to other regions than")
def keys_of_another_region(site: Site) -> None:
    other = Site(site.folder, sorted(manifests(site.uri))[1])
    shutil.rmtree(site.generation(2))
    shutil.copytree(other.generation(2), site.generation(2))


@damages(ERROR, "region keys", "both have the values")
def twins(site: Site) -> None:
    new = uuid4()
    table = mw.open_table(site.uri)
    values = dict(table.snapshot("manifest").regions[0].values or {})
    types = dict.fromkeys(values, pa.int32())
    wanted = RegionManifest(new, region_spec_id=1, region_values=values)
    RegionManifests(site.store, new, types).create(wanted)


@damages(ERROR, "region keys", "both have the values")
def sealed_twin_with_rows_in_the_wal(site: Site) -> None:
    """As queries see it: nothing of it is flushed, and not all of it is in the other one."""
    twins(site)
    (new,) = (one.region_id for one in manifests(site.uri).values() if one.writer_epoch == 0)
    schema = entry_schema(SCHEMA, LanceSchema.from_pyarrow(SCHEMA))
    batch = pa.record_batch([pa.array([1]), pa.array([1]), pa.array([False])], schema=schema)
    assert Wal(site.store, new).append(1, encode_entry(batch, writer_epoch=1, generation=1)).landed
    sealed = RegionManifests(site.store, new)
    sealed.commit(sealed.latest(), status=RegionStatus.SEALED, writer_epoch=1)
    with pytest.raises(mw.RepairError, match="two regions"):
        mw.open_table(site.uri).scan().read_all()


# The MemWAL index


@damages(ERROR, "merge progress", "generation 50 of region")
def progress_ahead(site: Site) -> None:
    site.details(merged_generations=dict.fromkeys(manifests(site.uri), 50))


@damages(ERROR, "merge progress", "was merged, but the region is gone")
def progress_of_nothing(site: Site) -> None:
    site.details(merged_generations={**dict.fromkeys(manifests(site.uri), 1), uuid4(): 3})


@damages(WARNING, "merge progress", "the table was restored, or an index commit erased")
def progress_erased(site: Site) -> None:
    site.details(merged_generations={})


@damages(ERROR, "merge progress", "but those up to 2 were collected")
def restored_below_the_floor(site: Site) -> None:
    raise_watermarks(site.store, {site.region: Watermark(generation=2)})


@damages(WARNING, "merge progress", "the index 'gone' is to be maintained")
def unknown_maintained_index(site: Site) -> None:
    site.details(maintained_indexes=("gone",))


@damages(ERROR, "region snapshots", "is not a region snapshot")
def snapshot_damaged(site: Site) -> None:
    site.details(inline_snapshots=b"x" * 100)


@damages(ERROR, "region snapshots", "is recorded, but its folder is gone")
def region_lost(site: Site) -> None:
    site.details(merged_generations={})
    shutil.rmtree(site.file(paths.region_folder(site.region)))


@damages(WARNING, "region snapshots", "the file of the region snapshot is gone")
def snapshot_file_lost(site: Site) -> None:
    site.details(inline_snapshots=None)


@damages(WARNING, "region snapshots", "can't be read in its recorded state: ")
def snapshot_of_an_old_version_damaged(site: Site) -> None:
    site.details(inline_snapshots=b"x" * 100)
    mw.open_table(site.uri).snapshot_regions()


@damages(WARNING, "region snapshots", "can't be read in its recorded state")
def generation_of_an_old_version_lost(site: Site) -> None:
    lost = site.generation(3)
    mw.open_table(site.uri).merge()
    shutil.rmtree(lost)


# Checkpoints


def _tag(site: Site) -> str:
    (tag,) = lance.dataset(site.uri).tags.list()
    return str(tag)


@damages(WARNING, "checkpoints", "the tag memwal_sql.checkpoint.c.1 is gone")
def tag_lost(site: Site) -> None:
    lance.dataset(site.uri).tags.delete(_tag(site))


@damages(ERROR, "checkpoints", "of the base table is gone")
def checkpointed_version_lost(site: Site) -> None:
    dataset = lance.dataset(site.uri)
    dataset.tags.delete(_tag(site))
    mw.open_table(site.uri).merge()
    lance.dataset(site.uri).cleanup_old_versions(older_than=NOW, delete_unverified=True)


@damages(ERROR, "checkpoints", "files that it retains are missing: WAL entries")
def checkpointed_entry_lost(site: Site) -> None:
    mw.open_table(site.uri).merge()
    with mw.open_table(site.uri).writer() as writer:
        writer.upsert(rows(60, 69, 6))
        lost = site.wal(1)
        writer.flush()
    lost.unlink()


# Leftovers


@damages(INFO, "leftovers", "1 of kind 'orphan'")
def orphan(site: Site) -> None:
    shutil.copytree(site.generation(2), site.generation(2).parent / "00000000_gen_2")


@damages(ERROR, "leftovers", "can't be read")
def link_to_a_folder(site: Site) -> None:
    site.file("_mem_wal/link").symlink_to(site.folder.parent)


@damages(INFO, "leftovers", "'mine' is not a region's folder")
def foreign_folder(site: Site) -> None:
    site.file("_mem_wal/mine").mkdir()


@pytest.mark.parametrize(
    ("damage", "severity", "check", "text"), [pytest.param(*c, id=c[0].__name__) for c in CASES]
)
def test_damage_is_found_where_it_is(
    site: Site,
    sound: set[tuple[str, str]],
    damage: Damage,
    severity: Severity,
    check: str,
    text: str,
) -> None:
    damage(site)
    damaged = folder_state(site.folder)
    report = mw.open_table(site.uri).check()
    assert folder_state(site.folder) == damaged, "a check changes nothing"
    new = [one for one in report if (one.check, one.what) not in sound]
    found = [one for one in new if one.check == check and text in one.what]
    assert found, str(report)
    assert {one.severity for one in found} == {severity}
    assert all(one.where and one.remedy for one in found)
    assert severity is not ERROR or not report.ok
    assert text in str(report)


def test_a_sound_table_has_no_finding(tmp_path: Path) -> None:
    table = create(tmp_path, regions=2)
    assert (len(table.check()), table.check().ok) == (0, True)
    flush(table, rows(0, 9, 1), rows(5, 12, 2))
    merge_all(table)
    with table.writer() as writer:
        writer.upsert(rows(3, 20, 3))
        writer.flush()
        table.snapshot_regions()
        table.checkpoint("c")
        writer.upsert(rows(3, 20, 4))
        collect(table)
        report = table.check()
        assert list(report) == []
        assert str(report).endswith("10 checks, nothing found")
        assert report.to_arrow().schema == FINDINGS


def test_a_link_that_is_no_regions_is_named_with_its_remedy(site: Site) -> None:
    link_to_a_folder(site)
    table = mw.open_table(site.uri)
    found = table.check().of(ERROR)
    assert found
    assert all("_mem_wal/link is a symbolic link" in one.what for one in found)
    assert all("remove the link" in one.what for one in found)
    with pytest.raises(mw.CorruptFileError, match="remove the link"):
        table.scan().read_all()


def test_a_report_is_a_table_too(site: Site) -> None:
    shutil.rmtree(site.generation(2))
    told: list[Any] = []
    report = mw.open_table(site.uri).check(progress=told.append)
    found = report.to_arrow()
    assert found.schema == FINDINGS
    assert found["severity"].to_pylist() == [str(one.severity) for one in report]
    assert found["severity"][0].as_py() == "error"
    assert (told[-1].done, told[-1].total) == (len(report.checks),) * 2


def test_keys_in_two_manual_regions_are_found(tmp_path: Path) -> None:
    """Issue 3's gap, protocol rule 10: manual regions are the caller's promise."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions=mw.manual())
    for name, first in (("a", 0), ("b", 8), ("c", 30)):
        flush_rows(table, rows(first, first + 9, 1), region=name)
    (found,) = [one for one in table.check() if one.check == "region keys"]
    assert found.severity is ERROR
    assert "2 keys are in more than one region, such as {'id': 8}" in found.what


def test_generations_that_were_flushed_before_an_index_was_made_are_named(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("body", pa.string()))
    table = mw.create_table(tmp_path / "t", schema, "id")
    batch = {"id": [1, 2], "val": [1, 2], "body": ["a word", "two words"]}
    flush_rows(table, batch)
    table.create_index("body", "FTS")
    flush_rows(table, batch)
    (found,) = [one for one in table.check() if one.check == "generations"]
    assert found.severity is INFO
    assert "generation 1 has no index 'body_idx'" in found.what


def _searched(folder: Path) -> mw.Table:
    """One generation with a vector and a full-text index."""
    schema = pa.schema(
        [("id", pa.int64()), ("body", pa.string()), ("vec", pa.list_(pa.float32(), 8))]
    )
    ids = list(range(300))
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.random.default_rng(1).normal(size=2400).astype(np.float32)), 8
    )
    batch = pa.table([ids, [f"word{n % 7} text" for n in ids], vectors], schema=schema)
    lance.write_dataset(batch, folder / "t")
    table = mw.enable(folder / "t", primary_key="id")
    table.create_index("body", "FTS")
    table.create_index("vec", "IVF_FLAT", num_partitions=2)
    flush_rows(table, batch)
    return table


def test_search_indexes_of_generations_are_sound(tmp_path: Path) -> None:
    assert len(_searched(tmp_path).check()) == 0


@pytest.mark.parametrize("name", ["body_idx", "vec_idx"])
def test_a_damaged_search_index_is_named(name: str, tmp_path: Path) -> None:
    table = _searched(tmp_path)
    (folder,) = (tmp_path / "t" / "_mem_wal").glob("*/*_gen_1")
    index = next(i for i in lance.dataset(str(folder)).describe_indices() if i.name == name)
    shutil.rmtree(folder / "_indices" / index.segments[0].uuid)
    (found,) = [one for one in table.check() if one.check == "generations"]
    assert found.severity is ERROR
    assert f"the index '{name}' of generation 1 can't be read" in found.what


def test_tables_of_native_code_are_sound(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    create_native(uri, rows(0, 9, 1), ["id"], unsharded=True)
    region = uuid4()
    with native_writer(uri, region) as writer:
        writer.put(rows(5, 14, 2))
    report = mw.open_table(uri).check()
    assert report.ok, str(report)


def test_keys_that_are_too_many_to_be_looked_at_at_once_are_all_compared(
    site: Site, within: Any
) -> None:
    within(KeysInMemory.set(nbytes=16))
    key_twice_in_the_base(site)
    (found,) = (one for one in mw.open_table(site.uri).check() if one.check == "base keys")
    assert found.what.startswith("2 keys occur more than once")


def test_a_composite_key_is_checked(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, ["id", "val"], regions=[mw.bucket("id", 2)])
    flush(table, rows(0, 9, 1))
    assert [one for one in table.check() if one.severity is not INFO] == []


def test_a_table_in_use_is_not_called_damaged(tmp_path: Path) -> None:
    """What looks wrong is looked at again: it may have been collected or committed meanwhile."""
    table = create(tmp_path, regions=2)
    stop = threading.Event()
    errors: list[BaseException] = []

    def use() -> None:
        try:
            with mw.open_table(table.uri).writer() as writer:
                n = 0
                while not stop.is_set():
                    n += 1
                    writer.upsert(rows(0, 20, n))
                    writer.flush()
                    if n % 3 == 0:
                        merge_all(table)
                        collect(table, after=1, versions_older_than=NOW)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    try:
        checker = mw.open_table(table.uri)
        reports = [checker.check() for _ in range(12)]
    finally:
        stop.set()
        thread.join(30)
    assert not errors, errors[0]
    bad = [report for report in reports if not report.ok]
    assert len(bad) <= 1, str(bad[0])  # every look may fall into a collection
    assert values(checker)


def test_a_record_that_is_no_json_is_an_error_that_names_it(site: Site) -> None:
    (path,) = site.file("_memwal_sql/checkpoints/c").iterdir()
    json.loads(path.read_text())
    path.write_text("{")
    report = mw.open_table(site.uri).check()
    assert any("checkpoints/c" in one.what for one in report.of(ERROR)), str(report)


def test_a_pinned_handle_checks_nothing(site: Site) -> None:
    with pytest.raises(mw.InvalidCallError, match="reads version"):
        mw.open_table(site.uri, checkpoint="c").check()


def _files_of_a_kind(folder: Path, but: str) -> dict[str, Path]:
    """One file of every kind below a table, the last by name; none below a folder `but`."""
    kinds: dict[str, Path] = {}
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        if but in file.parts:
            continue
        name = str(file.relative_to(folder))
        kinds[re.sub(r"[0-9a-f]{8}[-0-9a-f]*|[01]{64}|\d+", "*", name)] = file
    return kinds


NOT_OPENED = ("_versions/*.manifest", "_memwal_sql/table/*.json")


def test_a_damaged_file_of_any_kind_ends_no_check_early(site: Site) -> None:
    """Whatever is damaged, what else is the matter is still found, by the same check too.
    `MEMWAL_SOAK=10` damages each kind of file, else every second one."""
    other = sorted(manifests(site.uri))[1]
    generations = RegionManifests(site.store, other).latest().flushed_generations[1:]  # unmerged
    lost = {paths.bloom_filter_path(other, one.path) for one in generations}
    assert lost
    for one in lost:
        site.file(one).unlink()
    unknown_maintained_index(site)
    foreign_folder(site)
    tried = 0
    files = _files_of_a_kind(site.folder, str(other)).items()
    for kind, file in usual([one for one in files if one[0] not in NOT_OPENED], 4):
        whole = file.read_bytes()
        file.write_bytes(b"" if tried % 2 else whole[: len(whole) // 2])
        report = mw.open_table(site.uri).check()
        found = {one.where for one in report.of(ERROR) if one.check == "generations"}
        assert found >= lost, (kind, str(report))
        for check, what in (("merge progress", "'gone'"), ("leftovers", "'mine'")):
            told = [one.what for one in report if one.check == check]
            assert any(what in one for one in told), (kind, str(report))
        file.write_bytes(whole)
        tried += 1
    assert tried > (10 if IS_SOAK else 3)


def test_an_old_version_that_is_damaged_hides_no_checkpoint(site: Site) -> None:
    oldest = max(site.file("_versions").glob("*.manifest"))  # Lance counts names down
    oldest.write_bytes(b"")
    (tagged,) = site.file("_refs/tags").iterdir()
    tagged.unlink()
    report = mw.open_table(site.uri).check()
    assert f"_versions/{oldest.name}" in {one.where for one in report.of(ERROR)}, str(report)
    assert any("the tag" in one.what for one in report.of(WARNING)), str(report)


def test_the_remedy_for_keys_that_are_there_more_than_once_works(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(rows(0, 4, 1))
        writer.flush()
    table.merge()
    twice = lance.dataset(table.uri)
    lance.write_dataset(rows(3, 3, 2).cast(twice.schema), twice, mode="append")
    (finding,) = (one for one in table.check() if one.severity is ERROR)
    assert finding.remedy.startswith("upsert the right row of each of these keys through a writer")
    with table.writer() as writer:
        writer.upsert(rows(3, 3, 3))
        writer.flush()
    table.merge()
    assert table.check().ok
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1, 2, 3, 4]
    assert table.get([3])["val"].to_pylist() == [3]
