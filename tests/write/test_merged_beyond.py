"""A base table that has merged more of a region than the region has (an older copy of its folder, a
damaged index): what is written next would count as merged, and be read by nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import FencedError, RepairError
from memwal_sql.maintain.details import latest_dataset, mark_only
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.write.claim import claim
from memwal_sql.write.flusher import commit_flush
from tests.write.harness import Region, make_memtable, upsert

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])


def merged_rows(table: mw.Table, *ids: int) -> None:
    with table.writer() as writer:
        writer.upsert({"id": ids, "v": ["x"] * len(ids)})
        writer.flush()
    table.merge()


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """Its base has three generations, and `older` is a copy of its regions with one."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    merged_rows(table, 1, 2)
    shutil.copytree(tmp_path / "t" / "_mem_wal", tmp_path / "older")
    merged_rows(table, 1, 3)
    merged_rows(table, 4)
    return table


def put_back(table: mw.Table) -> None:
    regions = Path(table.uri) / "_mem_wal"
    shutil.rmtree(regions)
    shutil.copytree(regions.parent.parent / "older", regions)


def _written(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [9], "v": ["new"]})


def _published(table: mw.Table) -> None:
    table.replace_rows(pa.table({"id": [9], "v": ["new"]}, SCHEMA))


CALLS: dict[str, Callable[[mw.Table], object]] = {
    "count": mw.Table.count_rows,
    "get": lambda table: table.get([1]),
    "manifest": lambda table: table.scan(consistency="manifest").read_all(),
    "write": _written,
    "replace": _published,
    "merge": mw.Table.merge,
}


def test_nothing_is_read_or_written_beside_an_older_copy(table: mw.Table) -> None:
    put_back(table)
    for name, call in CALLS.items():
        with pytest.raises(RepairError, match=r"has generation 3 of region .* only 2"):
            call(mw.open_table(table.uri))
            pytest.fail(name)
    assert not mw.open_table(table.uri).check().ok


def test_a_region_that_is_lost_is_not_made_again(table: mw.Table) -> None:
    shutil.rmtree(Path(table.uri) / "_mem_wal")
    with pytest.raises(RepairError, match=r"has generation 3 of region .* only 1"):
        _written(mw.open_table(table.uri))


def test_a_flush_finds_it_too(table: mw.Table) -> None:
    """Where the progress has become wrong since the writer was opened."""
    writer = table.writer()
    writer.upsert({"id": [5], "v": ["a"]})
    (region,) = table.manifests()
    mark_only(latest_dataset(table.context), {region.region_id: 99})
    with pytest.raises(RepairError, match=r"has generation 99 of region .* only 4"):
        writer.flush()
    with pytest.raises(RepairError, match="generation 99"):
        writer.upsert({"id": [6], "v": ["a"]})
    writer.close()


def test_who_has_an_older_manifest_than_the_base_looks_again() -> None:
    """It was flushed and merged since: no error, or the one of a writer that was fenced."""
    region = Region()
    old = region.manifest
    writer = region.open()
    region_claim = region.claim().claim  # fences it
    stale = region_claim.manifest
    writer = region.open()
    for number in (1, 2, 3):
        writer.append(upsert({number: "x"}))
        writer.seal()
    assert region.manifest.current_generation == 4
    flushed = FlushedGeneration(1, "0000000a_gen_1", rows=1)
    with pytest.raises(FencedError):
        commit_flush(region.manifests(), stale, region_claim, (flushed,), merged=3)
    won = claim(region.manifests(), region.wal(), make_memtable, lambda: None, None, old, 3)
    assert won.claim.manifest.current_generation == 4
    for merged in (4, 2**53):
        before = region.manifest
        with pytest.raises(RepairError, match=f"has generation {merged} .* only 4"):
            claim(region.manifests(), region.wal(), make_memtable, lambda: None, None, old, merged)
        with pytest.raises(RepairError, match=f"has generation {merged} .* only 4"):
            generation = FlushedGeneration(4, "0000000b_gen_4", rows=1)
            manifest = won.claim.manifest
            commit_flush(region.manifests(), manifest, won.claim, (generation,), merged=merged)
        assert region.manifest == before


def test_a_recorded_state_may_be_older_than_the_progress_beside_it(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    merged_rows(table, 1)
    reader = table.collector.registry.regions(table.tracker.latest())[0]
    recorded = reader.refresh()
    merged_rows(table, 2)
    base = table.tracker.latest()
    assert base.details.merged_generations[reader.region_id] == 2
    assert reader.sources(base, recorded, ()) == ()
