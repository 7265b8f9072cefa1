"""Claiming a region: protocol rules 4, 6, 9 and 11, alone and in races."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from memwal_sql.errors import CorruptFileError, FencedError, RegionSealedError
from memwal_sql.storage.paths import manifest_path
from memwal_sql.storage.region.manifest import RegionStatus
from memwal_sql.storage.wal.log import encode_entry
from tests.each import each
from tests.model.faults import Kind
from tests.model.racing import race
from tests.soak import SOAK
from tests.write.harness import ENTRY_SCHEMA, Region, Rows, seen, upsert
from tests.write.hooked_store import DOUBTFUL, Call, Crash, HookedStore, crash_at

ROUNDS = 15 * SOAK


def entry(rows: Rows, epoch: int, generation: int) -> bytes:
    batch = upsert(rows)
    stored = pa.RecordBatch.from_arrays(batch.columns, schema=ENTRY_SCHEMA)
    return encode_entry(stored, writer_epoch=epoch, generation=generation)


def test_appendix_1_writer_fencing_example() -> None:
    """Specification 1, Appendix 1: two writers compete for a region.

    Positions differ from the example by the fences, which protocol rule 4 puts into the WAL.
    """
    region = Region()
    # Initial state: epoch 5, replay after 10, last seen 12. Entries 11 and 12 are not flushed.
    region.manifests().commit(
        region.manifest,
        writer_epoch=5,
        replay_after_wal_entry_position=10,
        wal_entry_position_last_seen=12,
    )
    region.wal().append(11, entry({11: "before"}, 5, 1))
    region.wal().append(12, entry({12: "before"}, 5, 1))

    # 1, 2: A loads epoch 5, increments it to 6 and writes the manifest.
    a = region.open()
    assert (a.epoch, region.manifest.writer_epoch) == (6, 6)
    # 3: A writes WAL entries.
    positions_a = [a.append(upsert({key: "A"})) for key in (13, 14, 15)]
    # 4, 5: B loads epoch 6, increments it to 7.
    b = region.open()
    assert (b.epoch, region.manifest.writer_epoch) == (7, 7)
    # 6: B writes WAL entries.
    positions_b = [b.append(upsert({key: "B"})) for key in (16, 17)]
    assert positions_a < positions_b

    # 7, 8, 9: A tries to flush its MemTable, sees epoch 7, and aborts all operations.
    a.seal()
    with pytest.raises(FencedError, match="epoch 7 took over from this one of epoch 6"):
        a.wait_flushed()
    with pytest.raises(FencedError):
        a.append(upsert({18: "A"}))
    assert region.manifest.flushed_generations == ()
    # 10: B continues to write normally.
    b.append(upsert({18: "B"}))

    # "What happens to writer A's WAL entries?" They were valid and are replayed by the next.
    everything = {11: "before", 12: "before", 13: "A", 14: "A", 15: "A"} | {
        16: "B",
        17: "B",
        18: "B",
    }
    assert seen(b) == everything == region.rows()
    assert seen(region.open()) == everything


@each("moment", ["before", "after"])
def test_the_fence_is_in_the_wal_before_anything_is_replayed(moment: str) -> None:
    """#7110: no fence before replay; protocol rule 4.

    The old writer appends at the last moment it can, just before the fence: what it was told is
    durable must be replayed. Just after the fence it must fail.
    """
    region = Region()
    old = region.open()
    old.append(upsert({1: "a"}))
    outcome: list[str] = []

    def append_late() -> None:
        try:
            old.append(upsert({2: "late"}))
            outcome.append("acknowledged")
        except FencedError:
            outcome.append("fenced")

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation != "put_if_absent" or "/wal/" not in path or outcome:
            return call()
        if moment == "before":
            append_late()
        result = call()
        if moment == "after":
            append_late()
        return result

    new = region.open(HookedStore(region.store, hook))
    acknowledged = moment == "before"
    assert outcome == ["acknowledged" if acknowledged else "fenced"]
    assert seen(new) == ({1: "a", 2: "late"} if acknowledged else {1: "a"}) == region.rows()


def test_a_claim_that_was_overtaken_between_epoch_and_fence_gives_up() -> None:
    """Protocol rule 4: the epoch must still be mine after the fence."""
    region = Region()
    winner: list[Any] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and "/wal/" in path and not winner:
            winner.append(region.open())
        return call()

    with pytest.raises(FencedError, match="epoch 2 took over from this one of epoch 1"):
        region.claim(HookedStore(region.store, hook))
    winner[0].append(upsert({1: "a"}))  # passes over the stray fence
    assert region.rows() == {1: "a"}


def test_a_sealed_region_takes_no_writer() -> None:
    """Protocol rule 1."""
    region = Region()
    region.manifests().commit(region.manifest, status=RegionStatus.SEALED)
    with pytest.raises(RegionSealedError, match="sealed"):
        region.open()
    assert region.manifest.writer_epoch == 0


def _damaged(data: bytes) -> bytes:
    at = data.index(b"xxxx")
    return data[:at] + b"y" + data[at + 1 :]


@each("harm", [None, _damaged, lambda data: data[:-20]])
@each("moment", [0, 2, 6])
def test_a_claim_that_cannot_succeed_leaves_the_live_writer_alone(
    moment: int, harm: Callable[[bytes], bytes] | None
) -> None:
    """Protocol rule 5: it may have the only copy of what is lost, and flushes it."""
    region = Region()
    writer = region.open()
    positions = [writer.append(upsert({key: "x" * 100})) for key in range(8)]
    path = region.wal().path(positions[moment])
    data = region.store.get(path)
    region.store.delete([path])
    if harm is not None:
        region.store.put_if_absent(path, harm(data))
    before, log = region.manifest, region.wal().positions()
    for _ in range(3):
        with pytest.raises(CorruptFileError, match=path):
            region.claim()
    assert (region.manifest, region.wal().positions()) == (before, log)
    writer.append(upsert({8: "y"}))
    writer.seal()
    writer.wait_flushed()
    region.store.delete([path])  # as a collection would by now
    assert region.rows() == dict.fromkeys(range(8), "x" * 100) | {8: "y"}
    region.open().append(upsert({9: "z"}))
    assert set(region.rows()) == {*range(10)}


def test_a_claim_that_finds_a_gap_goes_on_where_a_flush_has_closed_it() -> None:
    region = Region()
    writer = region.open()
    for key in range(4):
        lost = writer.append(upsert({key: "x"}))
        writer.append(upsert({key + 10: "x"}))
    region.store.delete([region.wal().path(lost)])
    flushed: list[bool] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        result = call()
        if operation == "list" and "/wal" in path and not flushed:
            flushed.append(True)
            writer.seal()
            writer.wait_flushed()
        return result

    region.open(HookedStore(region.store, hook)).append(upsert({20: "y"}))
    assert set(region.rows()) == {*range(4), *range(10, 14), 20}


@each("then", [None, "entry", "flush"])
def test_a_claim_lists_a_healthy_log_once_and_reads_an_entry_once(then: str | None) -> None:
    """Unless somebody has flushed since it looked."""
    region = Region()
    writer = region.open()
    for key in range(5):
        writer.append(upsert({key: "x"}))
    calls: list[tuple[str, str]] = []
    meanwhile: list[str] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and then and not meanwhile:
            meanwhile.append(then)
            writer.append(upsert({5: "x"}))
            if then == "flush":
                writer.seal()
                writer.wait_flushed()
        if "/wal" in path:
            calls.append((operation, path))
        return call()

    claimed = region.open(HookedStore(region.store, hook))
    operations = [operation for operation, _ in calls]
    assert operations.count("list") == (2 if then == "flush" else 1)
    read = [path for operation, path in calls if operation == "get"]
    # The entry that is found at the place for the fence is read again when it is replayed.
    assert len(read) - len(set(read)) == (then == "entry")
    assert set(seen(claimed)) == {None: {*range(5)}, "entry": {*range(6)}, "flush": set()}[then]
    assert set(region.rows()) == {*range(6 if then else 5)}


def test_a_gap_in_generations_is_an_error_that_names_the_entry() -> None:
    """Protocol rule 6."""
    region = Region()
    region.open()
    region.wal().append(2, entry({1: "x"}, 1, 3))
    with pytest.raises(CorruptFileError, match="generation 3, but no entry before it"):
        region.open()


def torn(region: Region, position: int, rows: Rows, epoch: int = 1) -> None:
    data = entry(rows, epoch, 1)
    region.store.put_if_absent(region.wal().path(position), data[: len(data) * 2 // 3])


def test_a_torn_last_entry_is_skipped_and_the_next_fence_says_so() -> None:
    """Protocol rule 9."""
    region = Region()
    writer = region.open()
    last = writer.append(upsert({1: "a"}))
    torn(region, last + 1, {2: "torn"})
    again = region.open()
    assert seen(again) == {1: "a"}
    fences = [e for e in _readable(region) if e.is_fence]
    assert fences[-1].skipped == (last + 1,)
    again.append(upsert({3: "c"}))
    for _ in range(2):  # the record is remembered by every later replay
        again = region.open()
        assert seen(again) == {1: "a", 3: "c"}


def test_a_torn_entry_below_rows_is_an_error_that_names_it() -> None:
    """Protocol rule 9: whoever wrote above it had been told that it was complete."""
    region = Region()
    writer = region.open()
    last = writer.append(upsert({1: "a"}))
    torn(region, last + 1, {2: "torn"})
    region.wal().append(last + 2, entry({3: "c"}, 1, 1))
    with pytest.raises(CorruptFileError, match=region.wal().path(last + 1)):
        region.open()


def test_a_torn_entry_that_was_known_to_be_complete_is_an_error() -> None:
    """Protocol rule 9: only above everything acknowledged."""
    region = Region()
    writer = region.open()
    last = writer.append(upsert({1: "a"}))
    region.manifests().commit(region.manifest, wal_entry_position_last_seen=last)
    path = region.wal().path(last)
    data = region.store.get(path)
    region.store.delete([path])
    region.store.put_if_absent(path, data[: len(data) // 2])
    with pytest.raises(CorruptFileError, match=path):
        region.open()


def test_a_claim_interrupted_anywhere_loses_nothing() -> None:
    """Protocol rule 4: a crash at any operation leaves an epoch and a fence at most."""
    for when in ("before", "after"):
        nth = 0
        while True:
            nth += 1
            region = Region()
            region.open().append(upsert({1: "a"}))
            torn(region, 3, {2: "torn"})
            try:
                region.claim(HookedStore(region.store, crash_at(nth, when)))
            except Crash:
                assert seen(region.open()) == {1: "a"}
            else:
                break
        assert nth > 5


@pytest.mark.parametrize("answer", DOUBTFUL)
@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("new", [False, True])
def test_a_claim_settles_doubtful_answers_by_nonces(
    answer: Kind, nth: int, new: bool, no_pauses: None
) -> None:
    """Protocol rule 3: two claimants otherwise write identical bytes and both think they won."""
    region = Region(created=not new)
    if not new:
        region.open().append(upsert({1: "a"}))
    store = HookedStore(region.store)
    store.fault_next_put(answer, nth)
    writer = region.open(store, new=new)
    writer.append(upsert({2: "b"}))
    assert writer.epoch == region.manifest.writer_epoch == (1 if new else 2)
    assert region.rows() == ({2: "b"} if new else {1: "a", 2: "b"})


def test_a_creation_interrupted_anywhere_leaves_a_region_to_be_claimed() -> None:
    for new in (False, True):
        for when in ("before", "after"):
            nth = 0
            while True:
                nth += 1
                region = Region(created=False)
                try:
                    region.claim(HookedStore(region.store, crash_at(nth, when)), new=True)
                except Crash:
                    writer = region.open(new=new or (nth == 1 and when == "before"))
                    writer.append(upsert({1: "a"}))
                    assert seen(region.open()) == region.rows() == {1: "a"}
                else:
                    break
            assert nth == 5  # its first manifest, a fence, two listings


@each("collected", [False, True])
def test_a_creator_that_others_overtake_anywhere_loses_no_row(collected: bool) -> None:
    """Protocol rules 4, 8 and 11: others create or claim the region, write and flush, and version 1
    may have been collected when the creator comes to it."""
    nth = 1
    while _overtaken(nth, collected):
        nth += 1
    assert nth == 6


def test_an_entry_that_is_lost_after_a_claim_has_listed_the_log_is_named() -> None:
    """Protocol rule 4: the fence is in its place, below one that was written after it."""
    region = Region()
    region.open().append(upsert({1: "a"}))
    lost, above = (region.wal().path(position) for position in (3, 4))

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and path == lost:
            region.store.put_if_absent(above, entry({2: "b"}, 1, 1))
        return call()

    with pytest.raises(CorruptFileError, match="was missing, but"):
        region.claim(HookedStore(region.store, hook))


def test_a_creator_takes_no_region_whose_first_files_were_collected() -> None:
    """Protocol rules 4 and 8: its first positions are free again, and below what is replayed."""
    region = Region()
    latest = region.manifest
    for epoch in (1, 2):
        latest = region.manifests().commit(
            latest, writer_epoch=epoch, replay_after_wal_entry_position=2
        )
    region.store.delete([manifest_path(region.id, version) for version in (1, 2)])
    with pytest.raises(FencedError, match="the writer of epoch 2 took over"):
        region.claim(new=True)
    assert region.manifests().versions() == [3]


def _overtaken(nth: int, collected: bool) -> bool:
    """Whether others came before the `nth` operation of a creator, which had so many."""
    region, acknowledged, count = Region(created=False), dict[int, str | None](), 0

    def write(writer: Any, rows: Rows) -> None:
        writer.append(upsert(rows))
        acknowledged.update(rows)

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal count
        count += 1
        if count == nth:
            other = region.open(new=True)
            write(other, {1: "a"})
            other.seal()
            write(other, {2: "b"})
            if collected:
                write(region.open(), {3: "c"})
                region.store.delete([manifest_path(region.id, version) for version in (1, 2)])
        return call()

    with suppress(FencedError):
        write(region.open(HookedStore(region.store, hook), new=True), {9: "z"})
    assert region.rows() == acknowledged, nth
    with suppress(FencedError):
        write(region.open(new=True), {10: "y"})
    region.open()
    assert region.rows() == acknowledged, nth
    assert not collected or count < nth or 1 not in region.manifests().versions()
    return count >= nth


@pytest.mark.slow
@each("claimants", [2, 3, 8])
def test_of_racing_claimants_one_writes_and_no_acknowledged_row_is_lost(claimants: int) -> None:
    """Protocol rules 3 to 5, and 11: creators race as well."""
    for round_ in range(max(3, ROUNDS // claimants)):
        _race(claimants, seed=round_ * 100 + claimants)


def _race(claimants: int, seed: int) -> None:
    region = Region(created=False)
    store = HookedStore(region.store, _jitter(seed))
    acknowledged: Rows = {}

    def run(me: int) -> None:
        for attempt in range(3):
            with suppress(FencedError):
                writer = region.open(store, new=not attempt)
                for step in range(3):
                    key = me * 100 + attempt * 10 + step
                    writer.append(upsert({key: "x"}))
                    acknowledged[key] = "x"

    race(*(partial(run, me) for me in range(claimants)))
    # A fenced write is refused for certain: nothing is there beyond what was acknowledged.
    assert region.rows() == acknowledged == seen(region.open()), f"seed {seed}"


def test_a_writer_paused_anywhere_while_its_successor_flushes_changes_nothing() -> None:
    """Protocol rules 4, 5 and 7."""
    pause_at = 1
    while _overtaken_at(pause_at):
        pause_at += 1
    assert pause_at > 10


def _overtaken_at(pause_at: int) -> bool:
    """Let a successor claim, write and flush while a writer is within its n-th operation."""
    region = Region()
    operations = 0

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal operations
        operations += 1
        if operations == pause_at:
            successor = region.open()
            epochs["successor"] = successor.epoch
            successor.append(upsert({2: "successor"}))
            successor.seal()
            successor.append(upsert({3: "successor"}))
        return call()

    acknowledged: Rows = {}
    epochs: dict[str, int] = {}
    with suppress(FencedError):
        writer = region.open(HookedStore(region.store, hook))
        epochs["writer"] = writer.epoch
        for key in (1, 2):
            writer.append(upsert({key: "old"}))
            acknowledged[key] = "old"
            writer.seal()
            writer.wait_flushed()
    if operations < pause_at:
        return False
    held, written = region.rows(), {2: "successor", 3: "successor"}
    # Who claimed last wrote last: the "successor" came first when the writer paused in its claim.
    successor_is_newer = epochs["successor"] > epochs.get("writer", 0)
    assert held == (acknowledged | written if successor_is_newer else written | acknowledged)
    generations = [g.generation for g in region.manifest.flushed_generations]
    assert generations == list(range(1, len(generations) + 1))
    assert seen(region.open()).items() <= held.items()
    return True


def _readable(region: Region) -> list[Any]:
    found = []
    for position in region.wal().positions():
        try:
            found.append(region.wal().read(position))
        except CorruptFileError:
            continue
    return found


def _jitter(seed: int) -> Any:
    generator = random.Random(seed)

    def hook(operation: str, path: str, call: Call) -> Any:
        if generator.random() < 0.3:
            threading.Event().wait(generator.random() * 0.002)
        return call()

    return hook
