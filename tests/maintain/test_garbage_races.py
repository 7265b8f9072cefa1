"""Collectors beside writers, readers, mergers and other collectors, and collectors that die."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.model.racing import race
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


# Mergers


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
