"""Collectors beside writers, readers, mergers and other collectors, and collectors that die."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.maintain.gc.rules import KEPT_MANIFESTS
from memwal_sql.maintain.lease import MAINTENANCE
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal
from tests.maintain.life import (
    NOW,
    SCHEMA,
    collect,
    create,
    flush,
    kinds,
    manifest,
    merge_all,
    rows,
    values,
)
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.process import ProcessKilledError, Switch, _KillableStore, as_another_process
from tests.model.racing import race
from tests.model.s3 import s3_server
from tests.model.writing import upsert_rows
from tests.soak import usual
from tests.write.hooked_store import Call, HookedStore


def _faulty_table(uri: str, fault: Fault) -> mw.Table:
    return opened_over(uri, lambda store: FaultyStore(store, [fault]))


# Zombies


def test_a_zombie_writer_writes_nothing_after_its_entries_were_collected(tmp_path: Path) -> None:
    """slatedb #1622: deleted WAL files must not let a writer that was fenced append again.

    The zombie sleeps right before its next append; its successor takes the region over, flushes
    everything, and the WAL is collected. Fences stay (protocol rules 4 and 21), so the position
    that the zombie wakes up with is taken.
    """
    table = create(tmp_path)
    append = Fault("put_if_absent", Kind.PAUSE, nth=3, path="/wal/")  # after its fence and an entry
    outcome: list[BaseException | None] = []
    zombie = _faulty_table(table.uri, append).writer(turns=False)
    zombie.upsert(rows(0, 3, 1))

    def write() -> None:
        try:
            zombie.upsert(rows(0, 3, 666))
            outcome.append(None)
        except mw.MemWalError as error:
            outcome.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert append.paused.wait(30)
    for n in (2, 3, 4):
        flush(table, rows(0, 3, n))
    merge_all(table)
    assert {"generation", "wal entry"} <= set(kinds(collect(table)))
    append.resume.set()
    thread.join(30)
    assert isinstance(outcome[0], mw.FencedError)
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(4), 4)
    with suppress(mw.MemWalError):
        zombie.close()


def test_a_torn_fence_holds_its_place(tmp_path: Path) -> None:
    """A store that tears a fence leaves something at the zombie's next position: it stays too."""
    table = create(tmp_path)
    zombie = mw.open_table(table.uri).writer(turns=False)
    zombie.upsert(rows(0, 3, 1))
    log = Wal(open_store(table.uri), manifest(table).region_id)
    torn = tmp_path / "t" / log.path(3)
    torn.write_bytes(log._store.get(log.path(1))[:150])
    flush(table, rows(0, 3, 2), rows(0, 3, 3))
    collect(table)
    assert torn.exists()
    with pytest.raises((mw.FencedError, mw.WriterFailedError)):
        zombie.upsert(rows(0, 3, 666))
    with suppress(mw.MemWalError):
        zombie.close()
    assert values(mw.open_table(table.uri)) == dict.fromkeys(range(4), 3)


def test_a_zombie_flush_commits_nothing_into_collected_versions(tmp_path: Path) -> None:
    """Protocol rules 7 and 8: the manifest version that it wins is in collected territory."""
    table = create(tmp_path)
    commit = Fault("put_if_absent", Kind.PAUSE, nth=2, path="/manifest/")  # its claim is the first
    flush(table, rows(0, 3, 0))
    handle = _faulty_table(table.uri, commit)
    zombie = handle.writer(flush_attempts=1, turns=False)
    zombie.upsert(rows(0, 3, 666))
    thread = threading.Thread(target=lambda: _suppressed(zombie.flush))
    thread.start()
    assert commit.paused.wait(30)
    for n in range(KEPT_MANIFESTS):
        flush(table, rows(0, 3, n + 1))
    report = collect(table)
    assert kinds(report)["manifest"] > 3
    # Its folder is of a generation that somebody else has committed.
    assert kinds(report)["orphan"] == 1
    expected = values(mw.open_table(table.uri))
    commit.resume.set()
    thread.join(30)
    _suppressed(zombie.close)
    assert values(mw.open_table(table.uri)) == expected == dict.fromkeys(range(4), KEPT_MANIFESTS)


def _suppressed(call: Any) -> None:
    with suppress(mw.MemWalError):
        call()


# Readers


def test_a_reader_in_the_middle_of_a_stream_gets_an_error_that_says_again(tmp_path: Path) -> None:
    """Protocol rule 14: a missing generation is never skipped."""
    wide = pa.list_(pa.float32(), 32)  # small generations are kept decoded
    schema = SCHEMA.append(pa.field("wide", wide))
    table = mw.create_table(tmp_path / "t", schema, "id")
    with table.writer() as writer:
        for n in range(2):
            ids = np.arange(n * 40_000, (n + 1) * 40_000)
            numbers = pa.array(np.zeros(len(ids) * 32, np.float32))
            columns = [ids, ids, pa.FixedSizeListArray.from_arrays(numbers, 32)]
            writer.upsert(pa.table(columns, schema=schema))
            writer.flush()
    reader = table.scan()
    seen = reader.read_next_batch().num_rows
    merge_all(table)
    assert kinds(collect(table))["generation"] == 2
    with pytest.raises(mw.RetryError, match="gen="):  # SourceGoneError is one
        while True:
            try:
                seen += reader.read_next_batch().num_rows
            except StopIteration:
                pytest.fail(f"the stream ended with {seen} rows")
    assert table.scan(["id"]).read_all().num_rows == 80_000


def test_readers_are_never_wrong_while_everything_goes_on(tmp_path: Path) -> None:
    """Writers flush, everything is merged and collected without grace, and readers of every kind
    see each key once, with a value that never goes back."""
    table = create(tmp_path, regions=2)
    flush(table, rows(0, 9, 0))
    stop = threading.Event()
    errors: list[BaseException] = []

    def read(consistency: str) -> None:
        try:
            handle = mw.open_table(table.uri)
            seen = dict.fromkeys(range(10), 0)
            while not stop.is_set():
                try:
                    found = values(handle, consistency)
                except mw.RetryError:
                    continue
                assert found.keys() == seen.keys()
                assert all(found[n] >= seen[n] for n in seen), (consistency, seen, found)
                seen = found
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=read, args=(consistency,))
        for consistency in ("strong", "manifest", "eventual")
    ]
    for thread in threads:
        thread.start()
    try:
        with table.writer() as writer:
            for n in range(1, 9):
                writer.upsert(rows(0, 9, n))
                writer.flush()
                if n % 2:
                    merge_all(table)
                if n % 3 == 0:
                    table.snapshot_regions()
                collect(table, after=1, versions_older_than=timedelta(seconds=2))
                if errors:
                    break
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert not errors, errors[0]
    assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 8)


# Mergers


def test_a_merger_overtaken_by_another_and_a_collector_changes_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 3, 1), rows(2, 5, 2))
    region = manifest(table).region_id
    folder = (
        tmp_path
        / "t"
        / paths.generation_folder(region, manifest(table).flushed_generations[0].path)
    )
    slow = lance.dataset(str(folder))  # a merger that has opened generation 1 and sleeps
    table.merge()
    collect(table)
    with pytest.raises((OSError, ValueError)):
        slow.to_table()
    assert values(table) == {0: 1, 1: 1, **dict.fromkeys(range(2, 6), 2)}
    table.merge()
    assert values(mw.open_table(table.uri)) == {0: 1, 1: 1, **dict.fromkeys(range(2, 6), 2)}


# Collectors


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with every kind of garbage that needs no clock."""
    folder = tmp_path_factory.mktemp("template")
    table = create(folder)
    flush(table, *(rows(n, n + 3, n) for n in range(9)))
    merge_all(table)
    flush(table, rows(2, 5, 77))
    region = folder / "t" / paths.region_folder(manifest(table).region_id)
    shutil.copytree(region / manifest(table).flushed_generations[0].path, region / "0000000a_gen_1")
    table.checkpoint("c")
    table.drop_checkpoint("c")
    return folder / "t"


def _expected() -> dict[int, int]:
    return {n: min(n, 8) for n in range(12)} | dict.fromkeys(range(2, 6), 77)


def _files(uri: str) -> set[str]:
    """What a collection leaves, but for the names and numbers of its own changes."""
    store = open_store(uri)
    return {meta.path for meta in store.list("_mem_wal") if "/manifest/" not in meta.path}


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_collector_that_dies_at_any_change_is_made_up_for_by_the_next(
    template: Path, tmp_path: Path, before: bool
) -> None:
    whole = str(tmp_path / "whole")
    shutil.copytree(template, whole)
    _collect_with(whole, open_store(whole))
    change = 0
    alive = False
    while not alive:
        change += 1
        uri = str(tmp_path / f"t{change}")
        shutil.copytree(template, uri)
        switch = Switch()
        switch.kill_at(change, before=before)
        one_by_one = HookedStore(open_store(uri))
        try:
            _collect_with(uri, _KillableStore(one_by_one, switch))
            alive = True
        except ProcessKilledError:
            pass
        assert values(mw.open_table(uri)) == _expected()
        upsert_rows(mw.open_table(uri), rows(30, 30, change))
        _collect_with(uri, open_store(uri))
        assert values(mw.open_table(uri)) == {**_expected(), 30: change}
        left = {path.partition("/wal/")[2] for path in _files(uri) - _files(whole)}
        assert len(left) == 2, f"change {change} left {left} beside a fence and the new entry"
        shutil.rmtree(uri)
    assert change > 5


def _collect_with(uri: str, store: Any) -> pa.Table:
    context = TableContext(uri, store, read_record(open_store(uri)))
    return collect_garbage(context, older_than=NOW, clock=lambda: time.time() + 1)


def test_collectors_at_the_same_time_delete_what_one_would(template: Path, tmp_path: Path) -> None:
    whole, uri = str(tmp_path / "whole"), str(tmp_path / "t")
    shutil.copytree(template, whole)
    shutil.copytree(template, uri)
    _collect_with(whole, open_store(whole))
    race(*[lambda: _collect_with(uri, open_store(uri))] * 4)
    assert _files(uri) == _files(whole)
    assert values(mw.open_table(uri)) == _expected()


def test_a_collector_that_others_overtake_does_not_see_a_restored_table(
    tmp_path: Path,
) -> None:
    """It has listed the base versions when others merge, and collect what was merged."""
    table = create(tmp_path)
    flush(table, rows(0, 3, 1))
    done: list[int] = []

    def overtake(operation: str, path: str, call: Call) -> Any:
        result = call()
        if not done and (operation, path) == ("list", "_versions"):
            done.append(1)
            merge_all(table)
            assert "generation" in kinds(collect(table))
        return result

    slow = opened_over(table.uri, lambda store: HookedStore(store, overtake))
    slow.collect_garbage(older_than=timedelta(0))
    assert done


def test_a_writer_goes_on_through_collections(tmp_path: Path) -> None:
    """The collector changes the region's manifest under the writer's hands."""
    table = create(tmp_path)
    with table.writer() as writer:
        for n in range(6):
            writer.upsert(rows(n, n + 2, n))
            writer.flush()
            merge_all(table)
            assert "generation" in kinds(collect(table))
        epoch = manifest(table).writer_epoch
    assert epoch == 1
    assert values(mw.open_table(table.uri)) == {n: min(n, 5) for n in range(8)}


def test_manifest_versions_are_deleted_in_ascending_order(tmp_path: Path) -> None:
    """Protocol rule 8: a gap below a version that is left would let a slow commit count."""
    table = create(tmp_path)
    flush(table, *(rows(0, 1, n) for n in range(KEPT_MANIFESTS + 6)))
    deleted: list[int] = []

    def watch(operation: str, path: str, call: Any) -> Any:
        number = paths.numbered(path, paths.MANIFEST_SUFFIX)
        if operation.startswith("delete") and number is not None:
            assert operation == "delete", "a bulk request has no order"
            deleted.append(number)
        return call()

    collect(table, store=HookedStore(open_store(table.uri), watch))
    assert deleted == list(range(1, len(deleted) + 1)) and len(deleted) > 5


def test_the_manifest_shrinks_before_a_file_goes(tmp_path: Path) -> None:
    """Protocol rule 21, and rule 1: the floors are raised even before that."""
    table = create(tmp_path)
    flush(table, rows(0, 1, 1), rows(0, 1, 2))
    merge_all(table)
    order: list[str] = []

    def watch(operation: str, path: str, call: Any) -> Any:
        if operation == "put_if_absent" or operation.startswith("delete"):
            order.append(f"{operation} {path.partition('/')[0]}")
            if operation.startswith("delete"):
                assert not manifest(table).flushed_generations
        return call()

    collect(table, store=HookedStore(open_store(table.uri), watch))
    assert order[0] == "put_if_absent _memwal_sql"
    assert order[1] == "put_if_absent _mem_wal"
    assert set(order[2:]) == {"delete_in_bulk _mem_wal"}


def test_the_number_of_files_stays_flat_under_a_stream(tmp_path: Path) -> None:
    """With merges, collections and old versions cleaned up, nothing is left behind. The records of
    the lease, which its holders delete, come and go."""
    table = create(tmp_path, regions=2)
    counts, lease = [], tmp_path / "t" / paths.RECORD_FOLDER / MAINTENANCE
    with table.writer() as writer:
        for n in range(24):
            writer.upsert(rows(0, 9, n))
            writer.flush()
            table.merge()
            if n % 4 == 3:
                collect(table, after=1, versions_older_than=NOW)
                files = [path for path in (tmp_path / "t").rglob("*") if path.is_file()]
                counts.append(sum(path.parent != lease for path in files))
    assert max(counts[2:]) <= counts[1] + 2 * KEPT_MANIFESTS, counts
    assert counts[-1] == counts[-2] == counts[-3]
    assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 23)
    assert table.check().ok


# Stores


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with s3_server("tables") as options:
        yield options


@pytest.mark.parametrize("place", usual(["memory", "s3"], 1))
def test_collections_checkpoints_and_old_versions_on_other_stores(
    place: str, s3_options: dict[str, str]
) -> None:
    uri = f"memory://{uuid4().hex}" if place == "memory" else f"s3://tables/{uuid4().hex}"
    options = None if place == "memory" else s3_options
    table = mw.create_table(
        uri, SCHEMA, "id", regions=[mw.bucket("id", 2)], storage_options=options
    )
    flush(table, rows(0, 9, 1), rows(5, 14, 2))
    table.checkpoint("c")
    assert [one for one in table.check() if one.check != "leftovers"] == []
    recorded = table.snapshot_regions()
    expected = values(table)
    table.merge()
    flush(table, rows(0, 3, 3))
    table.merge()
    report = table.collect_garbage(older_than=NOW)
    assert kinds(report) == {"generation": 2, "wal entry": 4}
    for then in ({"version": recorded}, {"checkpoint": "c"}):
        assert values(mw.open_table(uri, storage_options=options, **then)) == expected
    table.drop_checkpoint("c")
    report = table.collect_garbage(older_than=NOW, versions_older_than=NOW)
    assert {"base version", "generation", "checkpoint"} <= set(kinds(report))
    reader = mw.open_table(uri, storage_options=options)
    assert values(reader) == {**expected, **dict.fromkeys(range(4), 3)}
    assert table.collect_garbage(older_than=NOW, dry_run=True).num_rows == 0
    assert not [
        meta.path for meta in open_store(uri, options).list("_mem_wal") if "_gen_" in meta.path
    ]
    region_ids = {
        paths.region_of(name) for name in open_store(uri, options).list_folders("_mem_wal")
    }
    for region_id in region_ids:
        assert region_id is not None
        found = RegionManifests(open_store(uri, options), region_id).latest()
        assert found.flushed_generations == ()


def test_many_files_take_few_requests(tmp_path: Path) -> None:
    """Listed once, deleted in bulk: requests do not grow with the number of files."""
    counts = []
    for generations in (3, 12):
        folder = tmp_path / str(generations)
        folder.mkdir()
        table = create(folder)
        flush(table, *(rows(0, 2, n) for n in range(generations)))
        merge_all(table)
        store = _Counting(open_store(table.uri))
        report = collect(table, store=store)
        assert sum(report["files"].to_pylist()) > 10 * (generations - 1)
        listed = [path for operation, path in store.calls if operation == "list"]
        assert sum(path.startswith("_mem_wal") for path in listed) == 1  # the only region
        versions = lance.dataset(table.uri).version
        kept = [call for call in store.calls if call[0] not in ("delete", "get_tail")]
        assert len([c for c in store.calls if c[0] == "get_tail"]) <= versions
        counts.append(len(kept))
    assert counts[0] == counts[1]


def test_a_handle_reads_a_base_version_once(tmp_path: Path) -> None:
    """Versions never change: a collector that runs every minute reads the new ones only."""
    table = create(tmp_path)
    flush(table, rows(0, 2, 1))
    for number in range(5):
        lance.dataset(table.uri).update_metadata({"number": str(number)})
    store = _Counting(open_store(table.uri))
    context = TableContext(table.uri, store, read_record(open_store(table.uri)))
    reads = []
    for _ in range(2):
        store.calls.clear()
        collect_garbage(context, older_than=NOW)
        reads.append([operation for operation, _ in store.calls].count("get_tail"))
        lance.dataset(table.uri).update_metadata({"number": "another"})
    assert reads[0] > 5 and reads[1] == 1


class _Counting:
    """Counts requests; a bulk deletion is one."""

    def __init__(self, inner: Any) -> None:
        self.calls: list[tuple[str, str]] = []
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def counted(first: Any, *rest: Any) -> Any:
            self.calls.append((name, first if isinstance(first, str) else ""))
            return value(first, *rest)

        return counted


def test_other_regions_are_not_touched(tmp_path: Path) -> None:
    table = create(tmp_path, regions=2)
    flush(table, rows(0, 9, 1))
    first, second = manifests(table.uri)
    table.merge(regions=[str(first)])
    assert set(collect(table)["region_id"].to_pylist()) == {str(first)}
    assert len(manifests(table.uri)[second].flushed_generations) == 1
