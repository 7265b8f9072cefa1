"""`table.check()` finds nothing in a sound table, and each kind of damage where it is."""

from __future__ import annotations

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
from exec_nodes.resident.admission import Admission
from memwal_sql.maintain.checks.findings import FINDINGS, Severity
from memwal_sql.maintain.checks.keys import KeysInMemory
from memwal_sql.maintain.checks.run import Passes
from memwal_sql.storage import paths
from memwal_sql.storage.base.memwal_index import commit_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.gc_watermarks import Watermark, raise_watermarks
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest, RegionStatus
from memwal_sql.storage.region.snapshot_file import encode_regions
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal, encode_entry, encode_fence
from tests.each import each
from tests.interop.native import create_native, native_writer
from tests.maintain.life import NOW, SCHEMA, collect, create, flush, merge_all, rows, values
from tests.model.folder_state import folder_state
from tests.model.merging import details_of, manifests
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
    with Admission.set(small=-1), table.writer() as writer:  # with btrees, as of large generations
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

    def create(self, manifest: RegionManifest) -> None:
        RegionManifests(self.store, manifest.region_id).create(manifest)

    def commit(self, **changes: Any) -> None:
        RegionManifests(self.store, self.region).commit(self.manifest, **changes)

    def generation(self, number: int) -> Path:
        flushed = next(g for g in self.manifest.flushed_generations if g.generation == number)
        return self.file(paths.generation_folder(self.region, flushed.path))

    @property
    def oldest_version(self) -> Path:
        """The manifest of version 1 of the base: Lance counts names down."""
        return max(self.file("_versions").glob("*.manifest"))

    def as_in_generation_3(self, path: str) -> None:
        """Put a file of generation 3 into generation 2."""
        shutil.copyfile(self.generation(3) / path, self.generation(2) / path)

    def entry(self, position: int) -> Path:
        return self.file(paths.wal_path(self.region, position))

    def wal(self, above: int) -> Path:
        """The WAL entry so many positions above the flushed ones."""
        return self.entry(self.manifest.replay_after_wal_entry_position + above)

    def details(self, **changes: Any) -> None:
        dataset = lance.dataset(self.uri)
        commit_details(dataset, replace(details_of(self.uri, dataset), **changes))

    def put_entry(self, data: bytes) -> None:
        wal = Wal(self.store, self.region)
        assert wal.append(max(wal.positions()) + 1, data).landed


def copy_of(template: Path, tmp_path: Path) -> Site:
    shutil.copytree(template, tmp_path / "t")
    return Site(tmp_path / "t", sorted(manifests(str(tmp_path / "t")))[0])


@pytest.fixture
def site(template: Path, tmp_path: Path) -> Site:
    return copy_of(template, tmp_path)


Damage = Callable[[Site], object]


def cut(path: Path, lost: int) -> None:
    """Take so many bytes off the end of a file."""
    path.write_bytes(path.read_bytes()[:-lost])


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def blank(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


def flip(path: Path) -> None:
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def with_generation(site: Site, number: int, **changes: Any) -> None:
    """Let the manifest say something else of a generation."""
    listed = site.manifest.flushed_generations
    changed = [replace(one, **changes) if one.generation == number else one for one in listed]
    site.commit(flushed_generations=tuple(changed))


CASES: list[tuple[Severity, str, str, Damage]] = [
    # Manifests
    (ERROR, "manifests", "versions 3 to 3 are missing between others",
     lambda s: s.file(paths.manifest_path(s.region, 3)).unlink()),
    (ERROR, "manifests", "the newest manifest of the region can't be read",
     lambda s: cut(s.file(paths.manifest_path(s.region, s.manifest.version)), 5)),
    (WARNING, "manifests", "an old manifest version can't be read",
     lambda s: cut(s.file(paths.manifest_path(s.region, 2)), 5)),
    (ERROR, "manifests", "writer_epoch goes back from 2", lambda s: s.commit(writer_epoch=1)),
    (INFO, "manifests", "the region has no manifest",
     lambda s: s.store.put(paths.wal_path(uuid4(), 1), encode_fence(writer_epoch=1))),
    (WARNING, "manifests", "belongs to region spec 7",
     lambda s: s.create(RegionManifest(uuid4(), region_spec_id=7))),
    (WARNING, "manifests", "has no region values",
     lambda s: s.create(RegionManifest(uuid4(), region_spec_id=1))),
    # The WAL
    (ERROR, "wal", "are missing, and later ones exist", lambda s: s.wal(1).unlink()),
    (ERROR, "wal", "is a folder", lambda s: s.wal(3).mkdir()),
    (ERROR, "wal", "does not have the checksum that it was written with", lambda s: flip(s.wal(1))),
    (ERROR, "wal", "ends within a header", lambda s: halve(s.wal(1))),
    (WARNING, "wal", "durable rows may be lost", lambda s: s.wal(2).write_bytes(b"")),
    (WARNING, "wal", "durable rows may be lost", lambda s: halve(s.wal(2))),
    (ERROR, "wal", "table.changes() can't read a flushed WAL entry", lambda s: cut(s.wal(-1), 20)),
    (ERROR, "wal", "table.changes() can't read a flushed WAL entry",
     lambda s: s.wal(0).write_bytes(b"")),
    (ERROR, "wal", "table.changes() can't read a flushed WAL entry",
     lambda s: flip(s.entry(1))),
    (ERROR, "wal", "position 99 was seen before, but is missing",
     lambda s: s.commit(wal_entry_position_last_seen=99)),
    (WARNING, "wal", "the last flushed WAL entry, at position", lambda s: s.wal(0).unlink()),
    (ERROR, "wal", "has writer epoch 99", lambda s: s.put_entry(encode_fence(writer_epoch=99))),
    (WARNING, "wal", "durable rows may be lost",
     lambda s: (halve(s.wal(2)), s.put_entry(encode_fence(writer_epoch=1)))),
    (WARNING, "wal", "table.wal() can't read an old WAL entry",
     lambda s: (s.entry(1).write_bytes(b""), s.entry(2).unlink())),
    # Generations
    (ERROR, "generations", "lists generations twice: [1, 2, 3, 3]",
     lambda s: s.commit(flushed_generations=(
         *s.manifest.flushed_generations, FlushedGeneration(3, "00000000_gen_3")))),
    (ERROR, "generations", "the folder of generation 2 is missing",
     lambda s: shutil.rmtree(s.generation(2))),
    (WARNING, "generations", "the folder of generation 1 is missing; its rows are in the base",
     lambda s: shutil.rmtree(s.generation(1))),
    (ERROR, "generations", "generation 2 can't be read",
     lambda s: cut(*(s.generation(2) / "data").iterdir(), 30)),
    (ERROR, "generations", "generation 2 can't be read",
     lambda s: shutil.rmtree(s.generation(2) / "_versions")),
    (ERROR, "generations", "instead of 1000", lambda s: with_generation(s, 2, rows=1000)),
    (ERROR, "generations", "it has no column '_tombstone'",
     lambda s: lance.dataset(str(s.generation(2))).drop_columns(["_tombstone"])),
    # Bloom filters
    (ERROR, "generations", "is not there",
     lambda s: (s.generation(2) / "bloom_filter.bin").unlink()),
    (ERROR, "generations", "not a whole number of 32-byte blocks",
     lambda s: cut(s.generation(2) / "bloom_filter.bin", 1)),
    (ERROR, "generations", "zeros only", lambda s: blank(s.generation(2) / "bloom_filter.bin")),
    # Indexes of generations
    (ERROR, "generations", "the index 'id_idx' of generation 2 can't be read",
     lambda s: next((s.generation(2) / "_indices").glob("*/page_lookup.lance")).unlink()),
    (ERROR, "generations", "a btree of generation 2 lacks",
     lambda s: s.as_in_generation_3("_pk_index/page_data.lance")),
    (ERROR, "generations", "has other keys in its pages than its lookup table says",
     lambda s: s.as_in_generation_3("_pk_index/page_lookup.lance")),
    (ERROR, "generations", "a btree of generation 2 can't be read",
     lambda s: shutil.rmtree(s.generation(2) / "_indices")),
    (ERROR, "generations", "a btree of generation 2 can't be read",
     lambda s: halve(s.generation(2) / "_pk_index/page_lookup.lance")),
    (ERROR, "generations", "a btree of generation 2 can't be read",
     lambda s: (s.generation(2) / "_pk_index/page_data.lance").unlink()),
    # The MemWAL index
    (ERROR, "merge progress", "generation 50 of region",
     lambda s: s.details(merged_generations=dict.fromkeys(manifests(s.uri), 50))),
    (ERROR, "merge progress", "was merged, but the region is gone",
     lambda s: s.details(merged_generations={**dict.fromkeys(manifests(s.uri), 1), uuid4(): 3})),
    (WARNING, "merge progress", "the table was restored, or an index commit erased",
     lambda s: s.details(merged_generations={})),
    (ERROR, "merge progress", "but those up to 2 were collected",
     lambda s: raise_watermarks(s.store, {s.region: Watermark(generation=2)})),
    (ERROR, "region snapshots", "is not a region snapshot",
     lambda s: s.details(inline_snapshots=b"x" * 100)),
    (WARNING, "region snapshots", "the file of the region snapshot is gone",
     lambda s: s.details(inline_snapshots=None)),
    (ERROR, "region snapshots", "is recorded, but its folder is gone",
     lambda s: (s.details(merged_generations={}),
                shutil.rmtree(s.file(paths.region_folder(s.region))))),
    (WARNING, "region snapshots", "can't be read in its recorded state: ",
     lambda s: (s.details(inline_snapshots=b"x" * 100), mw.open_table(s.uri).snapshot_regions())),
    # Checkpoints
    (ERROR, "checkpoints", "a WAL entry that it retains can't be read",
     lambda s: (s.wal(2).unlink(), s.wal(1).write_bytes(b""))),
    (WARNING, "checkpoints", "the tag memwal_sql.checkpoint.c.1 is gone",
     lambda s: lance.dataset(s.uri).tags.delete(_tag(s))),
    (WARNING, "checkpoints", "the tag memwal_sql.checkpoint.c.1 is gone",
     lambda s: (lance.dataset(s.uri).tags.delete(_tag(s)), s.oldest_version.write_bytes(b""))),
    (ERROR, "checkpoints", "the checkpoint 'c' can't be read",
     lambda s: next(s.file("_memwal_sql/checkpoints/c").iterdir()).write_text("{")),
    (ERROR, "merge progress", "version 1 can't be read",
     lambda s: s.oldest_version.write_bytes(b"")),
    # Leftovers
    (INFO, "leftovers", "1 of kind 'orphan'",
     lambda s: shutil.copytree(s.generation(2), s.generation(2).parent / "00000000_gen_2")),
    (ERROR, "leftovers", "can't be read",
     lambda s: s.file("_mem_wal/link").symlink_to(s.folder.parent)),
]  # fmt: skip


def damages(severity: Severity, check: str, text: str) -> Callable[[Damage], Damage]:
    """Register a way to damage a table, and what shall be found."""

    def register(damage: Damage) -> Damage:
        CASES.append((severity, check, text, damage))
        return damage

    return register


# The WAL


@damages(ERROR, "wal", "was complete before, but is torn")
def noted_wal_entry_cut(site: Site) -> None:
    last = max(Wal(site.store, site.region).positions())
    site.commit(wal_entry_position_last_seen=last)
    halve(site.wal(2))


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


@damages(ERROR, "generations", "generations [2] are in no manifest")
def generation_not_listed(site: Site) -> None:
    kept = [one for one in site.manifest.flushed_generations if one.generation != 2]
    site.commit(flushed_generations=tuple(kept))


# Region snapshots


@damages(ERROR, "region snapshots", "is recorded as another one")
def region_recorded_with_other_values(site: Site) -> None:
    specs = mw.open_table(site.uri).info.region_specs
    recorded = list(manifests(site.uri).values())
    values = [one.region_values for one in recorded]
    swapped = [
        replace(one, region_values=of) for one, of in zip(recorded, values[::-1], strict=True)
    ]
    site.details(inline_snapshots=encode_regions(swapped, specs))


# Bloom filters


@damages(ERROR, "generations", "the bloom filter lacks")
def bloom_of_another_key(site: Site) -> None:
    other = BloomFilter.build(np.array([1], np.uint64)).data
    (site.generation(2) / "bloom_filter.bin").write_bytes(other)
    with_generation(site, 2, bloom_checksum=zlib.crc32(other))


# Indexes of generations


@damages(WARNING, "generations", "of generation 2 covers")
def index_behind(site: Site) -> None:
    generation = lance.dataset(str(site.generation(2)))
    lance.write_dataset(generation.to_table().slice(0, 1), generation, mode="append")


@damages(ERROR, "generations", "a btree of generation 2 lacks")
def btree_of_other_rows(site: Site) -> None:
    for old in (site.generation(2) / "_indices").glob("*/page_data.lance"):
        (new,) = (site.generation(3) / "_indices").glob("*/page_data.lance")
        shutil.copyfile(new, old)


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


@damages(WARNING, "merge progress", "the index 'gone' is to be maintained")
def unknown_maintained_index(site: Site) -> None:
    site.details(maintained_indexes=("gone",))


@damages(WARNING, "region snapshots", "can't be read in its recorded state")
def generation_of_an_old_version_lost(site: Site) -> None:
    lost = site.generation(3)
    mw.open_table(site.uri).merge()
    shutil.rmtree(lost)


# Checkpoints


def _tag(site: Site) -> str:
    (tag,) = lance.dataset(site.uri).tags.list()
    return str(tag)


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


@damages(INFO, "leftovers", "'mine' is not a region's folder")
def foreign_folder(site: Site) -> None:
    site.file("_mem_wal/mine").mkdir()


@each("severity, check, text, damage", CASES)
def test_damage_is_found_where_it_is(
    template: Path,
    tmp_path: Path,
    sound: set[tuple[str, str]],
    within: Any,
    severity: Severity,
    check: str,
    text: str,
    damage: Damage,
) -> None:
    within(Passes.set(most=1))  # nobody else is at work
    site = copy_of(template, tmp_path)
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
        assert str(report).endswith("12 checks, nothing found")
        assert report.to_arrow().schema == FINDINGS


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


def test_a_damaged_search_index_is_named(tmp_path: Path) -> None:
    table = _searched(tmp_path)
    assert len(table.check()) == 0
    (folder,) = (tmp_path / "t" / "_mem_wal").glob("*/*_gen_1")
    for name in ("body_idx", "vec_idx"):
        index = next(i for i in lance.dataset(str(folder)).describe_indices() if i.name == name)
        segment = folder / "_indices" / index.segments[0].uuid
        segment.rename(tmp_path / "aside")
        (found,) = [one for one in table.check() if one.check == "generations"]
        assert found.severity is ERROR
        assert f"the index '{name}' of generation 1 can't be read" in found.what
        (tmp_path / "aside").rename(segment)


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
        reports = [checker.check() for _ in range(8)]
    finally:
        stop.set()
        thread.join(30)
    assert not errors, errors[0]
    bad = [report for report in reports if not report.ok]
    assert len(bad) <= 1, str(bad[0])  # every look may fall into a collection
    assert values(checker)


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
