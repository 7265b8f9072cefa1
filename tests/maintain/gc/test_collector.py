"""What the garbage collector takes and what it leaves (specification 2, "Garbage Collector")."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import lance
import pytest

import memwal_sql as mw
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.maintain.gc.rules import KEPT_MANIFESTS
from memwal_sql.storage import paths
from memwal_sql.storage.base import versions
from memwal_sql.storage.base.memwal_index import commit_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.gc_watermarks import read_watermarks
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal
from tests.each import each
from tests.maintain.life import (
    NOW,
    collect,
    create,
    flush,
    kinds,
    manifest,
    merge_all,
    rows,
    values,
)
from tests.model.folder_state import folder_state
from tests.model.merging import details_of, manifests, merge_one
from tests.model.process import as_another_process
from tests.write.hooked_store import Call, HookedStore

HOUR = 3600.0


def _folders(table: mw.Table) -> list[int]:
    """The generations whose folders are there."""
    region = paths.region_folder(manifest(table).region_id)
    names = open_store(table.uri).list_folders(region)
    found = (paths.parse_generation_name(name) for name in names)
    return sorted(one for one in found if one is not None)


def _wal(table: mw.Table) -> list[int]:
    return Wal(open_store(table.uri), manifest(table).region_id).positions()


def test_a_folder_that_is_no_region_s_stops_no_collection_and_no_check(tmp_path: Path) -> None:
    """However deep it is: nobody lists it."""
    table = create(tmp_path, regions=3)
    flush(table, rows(0, 20, 1))
    merge_all(table)
    foreign = tmp_path / "t" / "_mem_wal" / "mine"
    (foreign / "/".join("d" * 40)).mkdir(parents=True)
    assert {one.check for one in table.check()} == {"leftovers"}
    assert "generation" in kinds(collect(table, after=2 * HOUR, versions_older_than=NOW))
    assert foreign.is_dir() and len(values(table)) == 21


def test_merged_generations_go_and_the_rows_stay(tmp_path: Path) -> None:
    table = create(tmp_path, regions=3)
    flush(table, rows(0, 20, 1), rows(10, 30, 2))
    merge_all(table)
    flush(table, rows(25, 40, 3))
    before = values(table)
    report = collect(table)
    assert kinds(report)["generation"] == 6
    assert all(
        [one.generation for one in found.flushed_generations] == [3]
        for found in manifests(table.uri).values()
    )
    assert values(table) == values(mw.open_table(table.uri)) == before
    with as_another_process():
        assert values(mw.open_table(table.uri)) == before
    assert collect(table).num_rows == 0


def test_the_report_adds_up(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(0, 5, 2))
    merge_all(table)
    store = open_store(table.uri)
    before = {meta.path: meta.size for meta in store.list("_mem_wal")}
    told: list[Any] = []
    report = table.collect_garbage(older_than=NOW, progress=told.append)
    after = {meta.path for meta in store.list("_mem_wal")}
    gone = {path: size for path, size in before.items() if path not in after}
    assert sum(report["files"].to_pylist()) == len(gone)
    assert sum(report["bytes"].to_pylist()) == sum(gone.values())
    assert all(report["reason"].to_pylist())
    assert (told[-1].done, told[-1].total) == (len(gone),) * 2
    assert {one.job for one in told} == {"collect_garbage"}


@each("age", [timedelta(seconds=-1), 5, "1h"])
def test_ages_that_are_none_are_refused(tmp_path: Path, age: Any) -> None:
    table = create(tmp_path)
    with pytest.raises(mw.InvalidCallError, match="older_than="):
        table.collect_garbage(older_than=age)
    with pytest.raises(mw.InvalidCallError, match="versions_older_than="):
        table.collect_garbage(versions_older_than=age)


# Base versions


def test_the_version_that_readers_within_the_grace_began_with_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed long before, and had been the newest until a minute ago."""
    table = create(tmp_path)
    for val in range(3):
        flush(table, rows(10 * val, 10 * val + 9, val))
        table.merge()
    before = values(table)
    last = lance.dataset(table.uri).version
    reader = lance.dataset(table.uri, version=last)
    flush(table, rows(0, 5, 9))
    table.merge()
    assert table.compact()
    now, read = time.time() + 48 * HOUR, versions.read_base_version

    def dated(store: ObjectStore, number: int) -> versions.BaseVersion | None:
        found = read(store, number)
        return replace(found, timestamp=now - 60) if found and number > last else found

    monkeypatch.setattr(versions, "read_base_version", dated)
    ages = {"older_than": timedelta(hours=1), "versions_older_than": timedelta(days=1)}
    assert kinds(collect(table, clock=lambda: now, **ages))["base version"] == last - 1
    assert values(mw.open_table(table.uri, version=last)) == before
    assert reader.to_table().num_rows == 30
    report = collect(table, clock=lambda: now + 25 * HOUR, **ages)
    assert kinds(report)["base version"] == lance.dataset(table.uri).version - last
    assert values(table) == before | dict.fromkeys(range(6), 9)


# WAL entries


def test_flushed_entries_go_but_fences_and_what_native_code_probes(tmp_path: Path) -> None:
    """Protocol rule 21."""
    table = create(tmp_path)
    flush(table, rows(0, 2, 1), rows(0, 2, 2))  # a fence at 1, rows at 2 and 3
    flush(table, rows(0, 2, 3), rows(0, 2, 4))  # a fence at 4, rows at 5 and 6
    with table.writer() as writer:
        writer.upsert(rows(5, 6, 5))  # a fence at 7, rows at 8 that are not flushed
    now = manifest(table)
    assert (now.replay_after_wal_entry_position, now.wal_entry_position_last_seen) == (6, 6)
    collect(table)
    assert _wal(table) == [1, 4, 6, 7, 8]
    manifests_of = RegionManifests(open_store(table.uri), now.region_id)
    manifests_of.commit(manifests_of.latest(), wal_entry_position_last_seen=8)
    collect(table)
    assert _wal(table) == [1, 4, 6, 7, 8]
    assert read_watermarks(open_store(table.uri))[now.region_id].wal == 5
    assert values(table) == dict.fromkeys(range(3), 4) | {5: 5, 6: 5}


# Conditions on generations


def test_generations_wait_for_the_maintained_indexes(tmp_path: Path) -> None:
    """Specification 2: all maintained indexes have caught up."""
    table = create(tmp_path)
    flush(table, rows(0, 400, 1))
    merge_all(table)
    dataset = lance.dataset(table.uri)
    dataset.create_scalar_index("val", "BTREE", name="val_idx")
    details = details_of(table.uri, dataset)
    region = manifest(table).region_id
    commit_details(
        dataset,
        replace(details, maintained_indexes=("val_idx",), index_catchup={"val_idx": {region: 1}}),
    )
    flush(table, rows(500, 600, 2))
    merge_all(table)
    assert kinds(collect(table))["generation"] == 1
    assert _folders(table) == [2]
    lance.dataset(table.uri).optimize.optimize_indices()
    collect(table)
    assert _folders(table) == []


def test_generations_that_a_retained_version_reads_stay(tmp_path: Path) -> None:
    """Protocol rule 18: and the version reads them after the collection."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(3, 9, 2))
    recorded = table.snapshot_regions()
    expected = values(table)
    merge_all(table)
    flush(table, rows(0, 9, 3))
    merge_all(table)
    collect(table)
    assert _folders(table) == [1, 2]
    assert values(mw.open_table(table.uri, version=recorded)) == expected
    report = collect(table, after=1, versions_older_than=NOW)
    assert kinds(report)["base version"] >= recorded
    assert _folders(table) == []
    assert values(table) == dict.fromkeys(range(10), 3)
    with pytest.raises(mw.InvalidCallError, match=f"no version {recorded}"):
        mw.open_table(table.uri, version=recorded)


@pytest.mark.parametrize("kept_by", ["tag", "branch"])
def test_a_version_that_lance_keeps_keeps_its_generations(tmp_path: Path, kept_by: str) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 5, 1))
    recorded = table.snapshot_regions()
    if kept_by == "tag":
        lance.dataset(table.uri).tags.create("mine", recorded)
    else:
        lance.dataset(table.uri).create_branch("mine", recorded)
    merge_all(table)
    assert "generation" not in kinds(collect(table, after=1, versions_older_than=NOW))
    assert values(mw.open_table(table.uri, version=recorded)) == dict.fromkeys(range(6), 1)


def test_a_grace_period_keeps_what_was_merged_lately(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(0, 5, 2))
    merge_all(table)
    for after in (0, HOUR - 60):
        assert collect(table, after=after, older_than=timedelta(hours=1)).num_rows == 0
    report = collect(table, after=HOUR + 60, older_than=timedelta(hours=1))
    assert kinds(report) == {"generation": 2, "wal entry": 1}


def test_progress_that_an_index_commit_erased_is_waited_for(tmp_path: Path) -> None:
    """Protocol rule 19: files are collected only after a look at the versions before."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(0, 5, 2))
    region = manifest(table).region_id
    merge_one(table.uri, region, ["id"])
    old = lance.dataset(table.uri)
    details = details_of(table.uri, old)
    merge_one(table.uri, region, ["id"])
    commit_details(old, details)  # Lance takes it, and generation 2 looks unmerged
    assert "generation" not in kinds(collect(table))
    assert values(table) == dict.fromkeys(range(6), 2)
    merge_one(table.uri, region, ["id"])
    assert kinds(collect(table))["generation"] == 2


def test_a_restore_below_what_was_collected_is_an_error_and_collects_nothing(
    tmp_path: Path,
) -> None:
    """Protocol rule 22: never old rows again."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1))
    merge_all(table)
    old = lance.dataset(table.uri).version
    flush(table, rows(0, 5, 2))
    merge_all(table)
    collect(table)
    newest = lance.dataset(table.uri).version
    open_writer = table.writer()
    lance.dataset(table.uri, version=old).restore()
    for call in (
        lambda: values(table),
        lambda: table.get([1]),
        lambda: open_writer.upsert(rows(0, 5, 3)),
        lambda: table.writer(),
        lambda: table.publisher(),
        lambda: values(mw.open_table(table.uri), "manifest"),
        lambda: collect(table),
        lambda: collect(table, after=1, versions_older_than=NOW),  # newest is the way out
    ):
        with pytest.raises(mw.TableReplacedError, match="restored to a version"):
            call()
    open_writer.close()
    lance.dataset(table.uri, version=newest).restore()
    assert values(mw.open_table(table.uri)) == dict.fromkeys(range(6), 2)


def test_a_base_that_was_overwritten_is_an_error_and_collects_nothing(tmp_path: Path) -> None:
    """Protocol rule 22."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(0, 5, 2))
    merge_all(table)
    lance.write_dataset(rows(0, 5, 9), table.uri, mode="overwrite")
    before = folder_state(tmp_path / "t")
    with pytest.raises(mw.TableReplacedError, match="overwritten"):
        table.collect_garbage(older_than=NOW)
    assert folder_state(tmp_path / "t") == before


# Orphans


def test_only_folders_that_can_never_be_committed_are_orphans(tmp_path: Path) -> None:
    """Protocol rule 21: a folder of the current generation may be a flush that is under way."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1), rows(0, 5, 2))
    region = tmp_path / "t" / paths.region_folder(manifest(table).region_id)
    flushed = manifest(table).flushed_generations
    shutil.copytree(
        region / flushed[1].path, region / "00000000_gen_2", copy_function=shutil.copyfile
    )
    assert collect(table, older_than=timedelta(hours=1)).num_rows == 0
    shutil.copytree(region / flushed[1].path, region / "00000000_gen_3")
    shutil.copytree(region / flushed[1].path, region / "mine_gen_1")
    report = collect(table)
    assert kinds(report) == {"orphan": 1, "wal entry": 1}
    assert {path.name for path in region.glob("*_gen_*")} == {
        *(one.path for one in flushed),
        "00000000_gen_3",
        "mine_gen_1",
    }


def test_temporary_files_go_when_no_put_can_be_that_slow(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 5, 1))
    wal = tmp_path / "t" / paths.wal_folder(manifest(table).region_id)
    (wal / ".tmp-1234").write_bytes(b"half an entry")
    (wal / f"{'0' * 64}.arrow#3").write_bytes(b"half of Lance's")
    assert collect(table).num_rows == 0
    report = collect(table, after=HOUR + 1)
    assert kinds(report) == {"temporary file": 2}
    assert not list(wal.glob(".tmp*")) and not list(wal.glob("*#3"))


def test_rows_that_a_dead_job_staged_go_after_a_week(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 5, 1))
    job = tmp_path / "t" / "_memwal_sql" / "staging" / "job"
    (job / "attempt").mkdir(parents=True)
    (job / "attempt" / "0.arrow").write_bytes(b"rows")
    (job / "attempt" / "1.arrow").write_bytes(b"more")
    assert collect(table, after=6 * 24 * HOUR).num_rows == 0
    report = collect(table, after=7 * 24 * HOUR + 1)
    assert (kinds(report), report["files"].to_pylist()) == ({"staged rows": 1}, [2])
    assert not job.exists()


def test_region_snapshots_of_no_version_go(tmp_path: Path) -> None:
    """Protocol rule 23: progress marks leave them behind; base indexes are not touched."""
    table = create(tmp_path)
    flush(table, rows(0, 5, 1))
    table.snapshot_regions()
    indices = tmp_path / "t" / "_indices"
    before = set(indices.iterdir())
    orphan = indices / str(uuid4())
    orphan.mkdir()
    (orphan / "index.lance").write_bytes(b"LANC")
    assert collect(table).num_rows == 0
    assert kinds(collect(table, after=HOUR + 1)) == {"region snapshot": 1}
    assert set(indices.iterdir()) == before


# Manifest versions


def test_old_manifest_versions_go_and_the_newest_ones_stay(tmp_path: Path) -> None:
    """Protocol rule 8: in ascending order, as a gap below a version that is left would let a slow
    commit count."""
    table = create(tmp_path)
    flush(table, *(rows(0, 1, n) for n in range(KEPT_MANIFESTS + 6)))
    reader = mw.open_table(table.uri)
    before = values(reader)
    newest = manifest(table)
    deleted: list[int] = []

    def watch(operation: str, path: str, call: Call) -> Any:
        number = paths.numbered(path, paths.MANIFEST_SUFFIX)
        if operation.startswith("delete") and number is not None:
            assert operation == "delete", "a bulk request has no order"
            deleted.append(number)
        return call()

    collect(table, store=HookedStore(open_store(table.uri), watch))
    assert deleted == list(range(1, len(deleted) + 1)) and len(deleted) > 5
    region = newest.region_id
    listed = open_store(table.uri).list(paths.manifest_folder(region))
    numbers = [paths.numbered(meta.path, paths.MANIFEST_SUFFIX) for meta in listed]
    left = sorted(number for number in numbers if number is not None)
    assert left == list(range(newest.version - KEPT_MANIFESTS + 1, newest.version + 1))
    assert values(reader) == values(mw.open_table(table.uri)) == before
    flush(table, rows(7, 7, 7))
    assert values(reader) == before | {7: 7}


# Requests


def test_many_files_take_few_requests_and_a_base_version_is_read_once(tmp_path: Path) -> None:
    """Listed once, deleted in bulk: requests do not grow with the number of files. Versions never
    change, so that a collector that runs every minute reads the new ones only."""
    counts = []
    for generations in (3, 12):
        table = create(tmp_path / str(generations))
        flush(table, *(rows(0, 2, n) for n in range(generations)))
        merge_all(table)
        context, calls = table.context, list[tuple[str, str]]()

        def note(operation: str, path: str, call: Call, calls: Any = calls) -> Any:
            calls.append((operation, path))
            return call()

        store = HookedStore(open_store(table.uri), note)
        assert collect_garbage(replace(context, store=store), older_than=NOW).num_rows
        assert sum(path.startswith("_mem_wal") for name, path in calls if name == "list") == 1
        assert sum(name == "get_tail" for name, _ in calls) == lance.dataset(table.uri).version
        kept = ("delete", "delete_in_bulk", "get_tail")
        counts.append(sum(name not in kept for name, _ in calls))
        calls.clear()
        lance.dataset(table.uri).update_metadata({"number": "another"})
        collect_garbage(replace(context, store=store), older_than=NOW)
        assert sum(name == "get_tail" for name, _ in calls) == 1
    assert counts[0] == counts[1]


def test_the_manifests_of_regions_are_written_side_by_side(tmp_path: Path) -> None:
    """On a disk, too, which joins what is synced at the same time."""
    table = create(tmp_path, regions=4)
    flush(table, rows(0, 99, 1))
    merge_all(table)
    together = Barrier(4)

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and path.endswith(".binpb"):
            together.wait(20)
        return call()

    collect(table, store=HookedStore(open_store(table.uri), hook))
    assert not any(one.flushed_generations for one in manifests(table.uri).values())
