"""The maintenance lease, and progress that a rewrite of the details erased (protocol rule 19)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import RetryError
from memwal_sql.maintain import details, lease
from memwal_sql.maintain.lease import Unfinished, maintenance_lease
from memwal_sql.maintain.merge import merger
from memwal_sql.maintain.merge.commit import PassWriter
from memwal_sql.storage.base.memwal_index import commit_details
from memwal_sql.storage.base.merge_token import LAST_PASS, pass_shard, token
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import Records
from tests.maintain.merging_tables import (
    GENERATIONS,
    expected,
    in_base,
    make_table,
    merger_of,
    progress_of,
    rows_of,
    write_generations,
)
from tests.model.merging import manifests, merge_one
from tests.model.process import forks
from tests.model.racing import race
from tests.model.waiting import reached


class Clock:
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_who_finds_it_held_waits_until_it_is_given_back(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    order: list[str] = []
    waiting = threading.Event()

    def second() -> None:
        waiting.set()
        with maintenance_lease(store, "second"):
            order.append("second")

    thread = threading.Thread(target=second)
    with maintenance_lease(store, "first") as held:
        thread.start()
        reached(waiting)
        for _ in range(3):
            held.renew()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_silent_holder_is_taken_over_and_finds_out(tmp_path: Path) -> None:
    store, clock = open_store(tmp_path), Clock()
    with maintenance_lease(store, "merge") as slow:
        with maintenance_lease(store, "garbage", sleep=clock.sleep, clock=clock) as taken:
            assert lease.Patience.seconds < clock.now < lease.Patience.seconds + 2
            taken.renew()
            with pytest.raises(mw.MaintenanceLostError, match="merge was too slow, and garbage"):
                slow.renew()
            taken.renew()
        with pytest.raises(mw.MaintenanceLostError):
            slow.renew()
    with maintenance_lease(store, "next", sleep=_never):
        pass


def test_a_holder_that_died_is_not_waited_for(tmp_path: Path) -> None:
    child = forks().Process(target=_hold_and_die, args=(tmp_path,))
    child.start()
    child.join(120)
    assert Records(open_store(tmp_path), "maintenance").latest().content["held"]  # type: ignore[union-attr]
    with maintenance_lease(open_store(tmp_path), "next", sleep=_never):
        pass


def _hold_and_die(folder: Path) -> None:
    held = maintenance_lease(open_store(folder), "dead")
    held.__enter__()
    os._exit(1)


def test_a_number_that_was_deleted_is_never_won(tmp_path: Path) -> None:
    """A claimant that looked long ago finds its number free once old records are removed."""
    store = open_store(tmp_path)
    records = Records(store, "maintenance")
    with maintenance_lease(store, "first"):
        pass
    seen = records.latest()
    for _ in range(25):
        with maintenance_lease(store, "others"):
            pass
        assert len(records.versions()) <= 36
    kept = records.versions()
    assert seen is not None and seen.version + 1 < kept[0]
    late = lease.Lease(records, "late", "late")
    assert not late.take(seen)
    assert records.versions() == kept


def _never(seconds: float) -> None:
    raise AssertionError("it waited")


def _die_after_commit(table: mw.Table, between: Callable[[], None]) -> Unfinished:
    """A rewrite of the details that others overtook, and whose process then died."""
    context = table.context
    with maintenance_lease(context.store, "rewrite") as held:
        dataset = details.latest_dataset(context)
        unfinished = Unfinished(dataset.version, uuid4())
        between()
        held.rewrites(unfinished)
        found = details.details_of(context, dataset)
        commit_details(dataset, replace(found, snapshot_ts_millis=1), unfinished.index_uuid)
    return unfinished


def _merge_two(uri: str, region: UUID) -> Callable[[], None]:
    def merge() -> None:
        assert merge_one(uri, region, ["id"]) is not None
        assert merge_one(uri, region, ["id"]) is not None

    return merge


def test_progress_that_a_dead_rewriter_erased_is_restored_by_the_next_job(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    assert merge_one(table.uri, region, ["id"]) == 1
    _die_after_commit(table, _merge_two(table.uri, region))
    assert progress_of(table.uri) == {str(region): 1}
    assert rows_of(mw.open_table(table.uri)) == expected()  # the generations are still there
    version = lance.dataset(table.uri).version
    assert table.merge() == 0
    assert progress_of(table.uri) == {str(region): 3}
    assert lance.dataset(table.uri).version == version + 1
    assert in_base(table.uri) == expected()
    assert table.merge() == 0
    assert lance.dataset(table.uri).version == version + 1


def test_a_rewrite_that_comes_after_its_takeover_erases_nothing(tmp_path: Path) -> None:
    """Protocol rule 19: a holder sleeps past its takeover, others merge, it commits and dies."""
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    context = table.context
    assert merge_one(table.uri, region, ["id"]) == 1
    with maintenance_lease(context.store, "rewrite") as held:
        asleep = details.latest_dataset(context)
        found = details.details_of(context, asleep)
        unfinished = Unfinished(asleep.version, uuid4())
        held.rewrites(unfinished)
    assert table.merge() == 2  # somebody who took over
    with suppress(RetryError):
        commit_details(asleep, found, unfinished.index_uuid)
    assert table.merge() == 0
    assert progress_of(table.uri) == {str(region): 3}
    assert rows_of(mw.open_table(table.uri)) == expected()


def test_notes_stay_until_every_rewrite_has_landed_or_can_land_no_more(tmp_path: Path) -> None:
    """Who takes over and dies before it has made the first one's commit impossible passes on both
    notes."""
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    context = table.context
    assert merge_one(table.uri, region, ["id"]) == 1
    first = details.latest_dataset(context)
    notes = [Unfinished(first.version, uuid4()) for _ in range(2)]
    with maintenance_lease(context.store, "first") as held:
        held.rewrites(notes[0])
    with maintenance_lease(context.store, "second") as held:
        assert held.unfinished == (notes[0],)
        held.rewrites(*held.unfinished, notes[1])
    assert merge_one(table.uri, region, ["id"]) == 2
    found = details.details_of(context, first)
    commit_details(first, found, notes[0].index_uuid)
    assert progress_of(table.uri) == {str(region): 1}
    table.merge()
    assert progress_of(table.uri) == {str(region): 3}
    with maintenance_lease(context.store, "last") as held:
        assert held.unfinished == ()
    with pytest.raises(RetryError):
        commit_details(first, found, notes[1].index_uuid)


def test_what_was_merged_again_meanwhile_is_not_marked_as_more(tmp_path: Path) -> None:
    """A merge that began on erased progress has put older rows back: the higher mark is wrong."""
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    assert merge_one(table.uri, region, ["id"]) == 1
    unfinished = _die_after_commit(table, _merge_two(table.uri, region))
    assert merge_one(table.uri, region, ["id"]) == 2
    assert in_base(table.uri) != expected()
    details.restore_progress(table.context, unfinished)
    assert progress_of(table.uri) == {str(region): 2}
    assert rows_of(mw.open_table(table.uri)) == expected()
    assert table.merge() == 1
    assert in_base(table.uri) == expected()


def test_nor_where_a_part_was_merged_again(tmp_path: Path) -> None:
    table = make_table(tmp_path, [({1: 1}, []), ({1: 2}, [])])
    (region,) = manifests(table.uri)
    unfinished = _die_after_commit(table, lambda: _merge_asleep(table, 2))
    dataset = lance.dataset(table.uri)
    rows = pa.table({"id": [1], "val": [1]}, dataset.schema)
    PassWriter(dataset, ["id"], {region: [1]}, {}).upsert(rows, last=False)
    details.restore_progress(table.context, unfinished)
    assert progress_of(table.uri) == {}
    assert rows_of(mw.open_table(table.uri)) == {1: 2}
    assert table.merge() == 2
    assert in_base(table.uri) == {1: 2}


def test_a_restore_is_refused_over_a_merge_in_between(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    (region,) = manifests(table.uri)
    assert table.merge() == 3
    write_generations(table, [({1: 9}, []), ({1: 10}, [])])
    unfinished = _die_after_commit(table, lambda: _merge_asleep(table, 2))
    assert progress_of(table.uri) == {str(region): 3}
    stale = details.latest_dataset(table.context)
    now = details.details_of(table.context, stale).merged_generations
    erased = {region: 5, pass_shard(region): token(5, LAST_PASS)}
    context = table.context
    _merge_asleep(table, 1)
    assert not details._restored(stale, now, erased)
    assert progress_of(table.uri) == {str(region): 4}
    details.restore_progress(context, unfinished)
    assert table.merge() == 1
    assert in_base(table.uri)[1] == 10


def _merge_asleep(table: mw.Table, count: int) -> None:
    """Merge as a merger does that took no part in the lease, or lost it in its sleep."""

    class Nothing:
        def renew(self) -> None: ...

    def one_step(of: merger.Merger, last: Any, step: Any = merger.Merger._step) -> bool:
        step(of, last)
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merger, "maintenance", lambda context, job: nullcontext(Nothing()))
        patch.setattr(merger.Merger, "_record", lambda *_: None)
        patch.setattr(merger.Merger, "_step", one_step)
        # Of so few bytes, each generation by itself.
        for _ in range(count):
            assert merger_of(mw.open_table(table.uri), max_pass_bytes=1)() == 1


def test_a_restored_table_is_not_taken_for_an_erased_one(tmp_path: Path) -> None:
    """Somebody's restore of an older version takes rows back together with their progress."""
    table = make_table(tmp_path, GENERATIONS[:1])
    before = table.snapshot_regions()
    table.merge()
    lance.dataset(table.uri, version=before).restore()
    table.snapshot_regions()
    assert progress_of(table.uri) == {}
    assert in_base(table.uri) == {}
    assert rows_of(mw.open_table(table.uri)) == expected(GENERATIONS[:1])


def test_rewrites_and_merges_at_once_lose_nothing(tmp_path: Path) -> None:
    table = make_table(tmp_path, [({n: n}, []) for n in range(6)])
    recorder = mw.open_table(table.uri)
    race(mw.open_table(table.uri).merge, lambda: [recorder.snapshot_regions() for _ in range(6)])
    (region,) = manifests(table.uri)
    assert progress_of(table.uri) == {str(region): 6}
    assert in_base(table.uri) == {n: n for n in range(6)}
