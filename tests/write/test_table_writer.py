"""The writer that users hold, on a real Lance table on a local disk."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

from memwal_sql.errors import (
    BackPressureError,
    FencedError,
    InvalidCallError,
    ReopenError,
    RepairError,
    StoreUnavailableError,
    WriterFailedError,
)
from memwal_sql.state import open_writers as live
from memwal_sql.storage import paths
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.factories import bucket, identity
from planner.regions.ids import new_region_id, region_id
from tests.model.racing import race
from tests.model.waiting import eventually, reached
from tests.write.hooked_store import Call, HookedStore
from tests.write.tables import Table


def test_upserts_and_deletes_are_durable_and_survive_reopening(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer() as writer:
        result = writer.upsert([{"id": 1, "val": "a"}, {"id": 2, "val": None}])
        assert (result.rows, result.reached) == (2, "durable")
        (region,) = table.regions()
        assert result.positions == {region.region_id: 2}
        assert table.values() == {1: "a", 2: None}
        assert writer.delete([2, 99]).rows == 2
    with table.writer() as writer:
        writer.upsert({"id": [3], "val": ["c"]})
    assert table.values() == {1: "a", 3: "c"}


def test_flush_turns_every_memtable_into_a_generation(tmp_path: Path) -> None:
    table = Table(tmp_path, regions=[bucket("id", 3)])
    with table.writer() as writer:
        writer.upsert({"id": list(range(30)), "val": ["old"] * 30})
        writer.upsert({"id": list(range(10)), "val": ["new"] * 10})
        writer.delete([29])
        writer.flush()
        manifests = table.regions()
        assert [len(m.flushed_generations) for m in manifests] == [1, 1, 1]
        writer.upsert({"id": [5], "val": ["newest"]})
    expected = {key: "new" if key < 10 else "old" for key in range(29)} | {5: "newest"}
    assert table.values() == expected
    flushed = [(m.region_id, g.path) for m in manifests for g in m.flushed_generations]
    rows = 0
    for one, path in flushed:
        generation = lance.dataset(paths.generation_uri(table.uri, one, path))
        keys = generation.to_table(columns=["id"])["id"].to_pylist()
        assert len(keys) == len(set(keys))
        rows += len(keys)
        assert table.store.exists(paths.bloom_filter_path(one, path))
        assert not generation.describe_indices()  # it is read whole
    assert rows == 30  # 29 rows and a tombstone


def test_flushing_goes_on_behind_upserts_at_the_row_limit(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer(memtable_rows=100) as writer:
        for start in range(0, 1000, 50):
            ids = list(range(start, start + 50))
            writer.upsert({"id": ids, "val": [str(i) for i in ids]})
    (manifest,) = table.regions()
    assert len(manifest.flushed_generations) == 10  # close waits for flushes under way
    assert table.values() == {i: str(i) for i in range(1000)}


@pytest.mark.parametrize(
    ("durable", "indexed", "reached"),
    [
        (True, True, "durable"),
        (True, False, "durable"),
        (False, True, "visible"),
        (False, False, "buffered"),
    ],
)
def test_a_result_says_what_was_reached(
    tmp_path: Path, durable: bool, indexed: bool, reached: str
) -> None:
    table = Table(tmp_path)
    with table.writer(durable=durable, indexed=indexed) as writer:
        result = writer.upsert({"id": [1], "val": ["a"]})
        assert (result.reached, bool(result.positions)) == (reached, durable)
        assert writer.upsert({"id": pa.array([], pa.int64()), "val": []}).rows == 0
    assert table.values() == {1: "a"}


def test_buffered_writes_reach_the_wal_in_the_background(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer(durable=False, wal_flush_interval_s=0.01) as writer:
        writer.upsert({"id": [1], "val": ["a"]})
        eventually(lambda: table.values() == {1: "a"})


def test_only_regions_that_get_rows_are_created_and_claimed(tmp_path: Path) -> None:
    table = Table(tmp_path, regions=[identity("id")])
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        writer.upsert({"id": [2], "val": ["c"]})
    assert sorted(m.region_values["id"] for m in table.regions()) == [1, 2]
    assert {m.writer_epoch for m in table.regions()} == {1}
    assert table.values() == {1: "a", 2: "c"}


def test_creators_racing_make_one_region(tmp_path: Path) -> None:
    """Protocol rule 11: ids are derived, creation is put-if-not-exists."""
    table = Table(tmp_path, regions=[bucket("id", 2)])
    barrier = threading.Barrier(6)
    acknowledged: list[int] = []

    def run(me: int) -> None:
        with table.writer() as writer:
            barrier.wait()
            for step in range(3):
                try:
                    writer.upsert({"id": [me * 10 + step], "val": ["x"]})
                    acknowledged.append(me * 10 + step)
                except FencedError:
                    return

    race(*(partial(run, me) for me in range(6)))
    regions = table.regions()
    spec = table.info.region_specs[0]
    derived = {
        new_region_id(table.incarnation, spec, {spec.field_ids[0]: value}) for value in (0, 1)
    }
    assert {m.region_id for m in regions} <= derived
    assert set(table.values()) == set(acknowledged) and acknowledged


def test_a_listed_region_with_these_values_is_taken_instead_of_the_derived_one(
    tmp_path: Path,
) -> None:
    """Protocol rule 11."""
    table = Table(tmp_path)
    other = UUID(int=5, version=4)
    listed = RegionManifests(table.store, other).create(RegionManifest(other, region_spec_id=1))
    with table.writer(regions_of=lambda spec_id, regions: [listed]) as writer:
        writer.upsert({"id": [1], "val": ["a"]})
    assert [m.region_id for m in table.regions()] == [other]


def test_a_region_whose_manifest_belongs_to_other_values_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path)
    derived = new_region_id(table.incarnation, table.info.region_specs[0], {"unsharded": 0})
    RegionManifests(table.store, derived).create(RegionManifest(derived, region_spec_id=3))
    with table.writer() as writer, pytest.raises(RepairError, match="its manifest says spec 3"):
        writer.upsert({"id": [1], "val": ["a"]})


def test_manual_regions_are_named(tmp_path: Path) -> None:
    table = Table(tmp_path, regions=None)
    with pytest.raises(InvalidCallError, match="name the one to write"):
        table.writer()
    by_id = UUID(int=9, version=4)
    with table.writer(region="north") as north, table.writer(region=str(by_id)) as south:
        north.upsert({"id": [1], "val": ["n"]})
        south.upsert({"id": [2], "val": ["s"]})
    with table.writer(region="north") as north:
        north.upsert({"id": [3], "val": ["n"]})
    named = region_id(table.incarnation, 0, {"name": "north"})
    assert {m.region_id for m in table.regions()} == {named, by_id}
    assert {m.region_spec_id for m in table.regions()} == {0}
    assert table.values() == {1: "n", 2: "s", 3: "n"}


def test_a_region_can_not_be_chosen_where_the_spec_decides(tmp_path: Path) -> None:
    with pytest.raises(InvalidCallError, match="region='north' can't be chosen"):
        Table(tmp_path).writer(region="north")


def test_a_second_writer_fences_one_that_takes_no_turns_which_says_so(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer(turns=False) as first:
        first.upsert({"id": [1], "val": ["a"]})
        with table.writer() as second:
            second.upsert({"id": [2], "val": ["b"]})
            with pytest.raises(FencedError, match="epoch 2 took over"):
                first.upsert({"id": [3], "val": ["c"]})
            assert not first.usable and second.usable
    assert table.values() == {1: "a", 2: "b"}


def test_a_buffered_writer_that_was_fenced_in_its_process_calls_nothing_visible(
    tmp_path: Path,
) -> None:
    table = Table(tmp_path)
    first = table.writer(durable=False, wal_flush_interval_s=100.0)
    idle = table.writer(durable=False)
    first.upsert({"id": [1], "val": ["a"]})
    with table.writer() as second:
        second.upsert({"id": [2], "val": ["b"]})
        with pytest.raises(FencedError, match="epoch 2 took over"):
            first.upsert({"id": [3], "val": ["c"]})
        with pytest.raises(FencedError, match="1 buffered rows were not written"):
            first.close()
        idle.close()
    assert table.values() == {2: "b"}


def test_writers_wait_for_room_and_flush_to_get_it(tmp_path: Path) -> None:
    table = Table(tmp_path, regions=[bucket("id", 3)])
    with table.writer(max_unflushed_bytes=40_000, back_pressure_timeout_s=30) as writer:
        for start in range(0, 2000, 100):
            ids = list(range(start, start + 100))
            writer.upsert({"id": ids, "val": ["x"] * 100})
            assert writer._budget.used < 80_000
    assert len(table.values()) == 2000
    assert sum(len(m.flushed_generations) for m in table.regions()) >= 4


def test_threads_that_write_at_once_do_not_find_the_same_room(tmp_path: Path) -> None:
    limit, threads, peaks = 100_000, 16, list[int]()

    def slow(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent":
            peaks.append(writer._budget.used)
            time.sleep(0.02)
        return call()

    table = Table(tmp_path)
    writer = table.writer(HookedStore(table.store, slow), max_unflushed_bytes=limit)

    def write(number: int) -> None:
        keys = list(range(100 * number, 100 * number + 100))
        writer.upsert({"id": keys, "val": ["x" * 400] * 100})

    race(*(partial(write, number) for number in range(threads)))
    writer.close()
    assert len(table.values()) == 100 * threads
    assert max(peaks) < 3 * limit, max(peaks)


def test_back_pressure_ends_in_an_error_with_nothing_written(tmp_path: Path) -> None:
    table = Table(tmp_path)
    store = HookedStore(table.store)
    writer = table.writer(store, max_unflushed_bytes=8_000, back_pressure_timeout_s=0.05)
    writer.upsert({"id": list(range(200)), "val": ["x"] * 200})
    released = threading.Event()

    def stuck(operation: str, path: str, call: Call) -> Any:
        if "bloom_filter" in path:
            reached(released)
        return call()

    store.hook = stuck
    with pytest.raises(BackPressureError, match="these rows were not written"):
        writer.upsert({"id": [1000], "val": ["y"]})
    assert 1000 not in table.values()
    released.set()
    eventually(lambda: writer._budget.used == 0)
    writer.upsert({"id": [1000], "val": ["y"]})
    writer.close()
    assert len(table.values()) == 201


def test_a_flush_that_failed_unseen_surfaces_at_close(tmp_path: Path) -> None:
    table = Table(tmp_path)

    def full(operation: str, path: str, call: Call) -> Any:
        if "bloom_filter" in path:
            raise StoreUnavailableError(f"{path}: the disk is full")
        return call()

    writer = table.writer(HookedStore(table.store, full), flush_attempts=1, memtable_rows=10)
    writer.upsert({"id": list(range(10)), "val": ["x"] * 10})
    with pytest.raises(WriterFailedError, match="disk is full"):
        writer.close()
    assert len(table.values()) == 10


def test_an_error_in_the_body_is_not_masked_by_closing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    store = HookedStore(table.store)

    def dead(operation: str, path: str, call: Call) -> Any:
        raise StoreUnavailableError(f"{path}: gone")

    with pytest.raises(KeyError, match="mine") as caught, table.writer(store, durable=False) as w:
        w.upsert({"id": [1], "val": ["a"]})
        store.hook = dead
        raise KeyError("mine")
    assert any("closing the writer failed too" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("stolen", [1, 2])
def test_an_error_says_which_regions_were_written(
    tmp_path: Path, durable: bool, stolen: int
) -> None:
    table = Table(tmp_path, regions=[identity("id")])
    with table.writer(durable=durable, turns=False) as writer, table.writer() as thief:
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        writer.sync()
        thief.upsert({"id": [stolen], "val": ["stolen"]})
        with pytest.raises(FencedError) as caught:
            writer.upsert({"id": [1, 2], "val": ["new", "new"]})
        assert any("are written" in note for note in caught.value.__notes__)
    assert table.values() == {1: "new", 2: "new"} | {stolen: "stolen"}


def test_buffered_rows_of_several_regions_are_put_at_once(tmp_path: Path) -> None:
    """By a call, by closing flushes, and by time."""
    together = threading.Barrier(2)

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and "/wal/" in path and together_now:
            together.wait(20)
        return call()

    table, together_now = Table(tmp_path, regions=[identity("id")]), False
    store = HookedStore(table.store, hook)
    with table.writer(store, durable=False, wal_flush_interval_s=0.05) as writer:
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        writer.sync()
        together_now = True
        for ended in (writer.sync, writer.flush):
            writer.upsert({"id": [1, 2], "val": ["a", "b"]})
            ended()
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        eventually(lambda: not any(one.has_buffered for one in writer.region_writers))
        together_now = False
    assert not together.broken


def test_a_closed_writer_and_one_after_a_fork_refuse(tmp_path: Path) -> None:
    table = Table(tmp_path)
    writer = table.writer()
    writer.upsert({"id": [1], "val": ["a"]})
    writer.pid += 1  # what a forked child sees
    with pytest.raises(ReopenError, match="does not survive a fork"):
        writer.upsert({"id": [2], "val": ["b"]})
    writer.pid = os.getpid()
    writer.close()
    writer.close()
    with pytest.raises(ReopenError, match="closed"):
        writer.upsert({"id": [2], "val": ["b"]})


def test_readers_find_the_writers_of_this_process(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer() as writer:
        assert live.live_table_writer(table.identity) is writer
        result = writer.upsert({"id": [1], "val": ["a"]})
        (region,) = result.positions
        found = live.live_writer(table.identity, region)
        assert found is not None and found.epoch == 1
        with table.writer() as successor:
            successor.upsert({"id": [2], "val": ["b"]})
            newer = live.live_writer(table.identity, region)
            assert newer is not None and newer.epoch == 2
            assert live.live_table_writer(table.identity) in (writer, successor)
    assert live.live_writer(table.identity, region) is None
    assert live.live_table_writer(table.identity) is None
