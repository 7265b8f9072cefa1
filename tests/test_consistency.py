"""What readers may see, and when: protocol rules 14 to 16, and the three consistency levels."""

from __future__ import annotations

import multiprocessing
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.errors import MemWalError, ReopenError
from memwal_sql.storage.region_manifest import RegionManifests
from memwal_sql.storage.store import open_store
from memwal_sql.write import live
from tests.consistency_child import write_counters
from tests.model import merging
from tests.model.process import as_another_process

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])


def _rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, numbers = zip(*pairs, strict=True)
    return pa.table({"id": ids, "n": numbers}, schema=SCHEMA)


def _keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _read(table: Any, consistency: str = "strong") -> dict[int, int]:
    rows = table.scan(consistency=consistency).read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key was returned twice"
    return found


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def table(uri: str) -> Any:
    """Rows 0 to 9 in the base table, one region."""
    lance.write_dataset(_rows(*((i, 0) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")


# Rule 15: strong


def test_strong_reads_see_rows_of_another_process_as_soon_as_they_are_acknowledged(
    table: Any, uri: str
) -> None:
    """Protocol rule 15."""
    context = datafusion.SessionContext()
    mw.register(context, "t", table, consistency="strong")
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    writer = processes.Process(target=write_counters, args=(uri, 40, theirs))
    writer.start()
    theirs.close()
    try:
        for _ in range(40):
            number = ours.recv()
            assert _read(table)[5] == number
            assert table.get([5])["n"].to_pylist() == [number]
            found = context.sql("SELECT n FROM t WHERE id = 5").to_arrow_table()
            assert found["n"].to_pylist() == [number]
            ours.send("go on")
    finally:
        ours.close()
        writer.join()
    assert writer.exitcode == 0


def test_strong_reads_see_this_process_s_buffered_rows_and_others_do_not(
    table: Any, uri: str
) -> None:
    with table.writer(durable=False, wal_flush_interval_s=60.0) as writer:
        writer.upsert(_rows((1, 7), (50, 8)))
        writer.delete(_keys(2))
        found = _read(table)
        assert found[1] == 7 and found[50] == 8 and 2 not in found
        assert _read(mw.open_table(uri)) == found
        assert _read(table, "manifest")[1] == 0
        with as_another_process():
            assert _read(mw.open_table(uri))[1] == 0
    with as_another_process():
        assert _read(mw.open_table(uri)) == found


def test_buffered_rows_of_a_fenced_writer_are_not_read(table: Any, uri: str) -> None:
    """Protocol rule 15: a fenced writer's MemTable refuses reads."""
    first = table.writer(durable=False, wal_flush_interval_s=60.0)
    first.upsert(_rows((1, 7)))
    assert _read(table)[1] == 7
    with mw.open_table(uri).writer() as second:
        second.upsert(_rows((3, 33)))
        assert _read(table) == {**dict.fromkeys(range(10), 0), 3: 33}
        assert _read(mw.open_table(uri))[1] == 0
        with pytest.raises(ReopenError):
            first.upsert(_rows((1, 8)))
            first.flush()
        with pytest.raises(ReopenError):
            first.flush()
    with suppress(MemWalError):
        first.close()
    assert _read(table) == {**dict.fromkeys(range(10), 0), 3: 33}


def test_buffered_rows_are_not_read_once_another_process_has_taken_over(
    table: Any, uri: str
) -> None:
    """Protocol rule 15: this process's own writer does not know yet that it was fenced."""
    first = table.writer(durable=False, wal_flush_interval_s=60.0)
    first.upsert(_rows((1, 7)))
    assert _read(table)[1] == 7
    with patch.object(live, "register", lambda uri, writer: None):
        second = mw.open_table(uri).writer()
        second.upsert(_rows((3, 33)))
    expected = {**dict.fromkeys(range(10), 0), 3: 33}
    assert _read(table) == expected
    assert table.get([1, 3])["n"].to_pylist() == [0, 33]
    with suppress(MemWalError):
        first.close()
    second.close()
    assert _read(table) == expected


def test_durable_rows_of_a_fenced_writer_stay(table: Any, uri: str) -> None:
    first = table.writer()
    first.upsert(_rows((1, 7)))
    with mw.open_table(uri).writer() as second:
        second.upsert(_rows((3, 33)))
        assert _read(table)[1] == 7


class _Interrupter:
    """A store that runs something in the middle of a read, at its n-th request."""

    def __init__(self, inner: Any, at: int, action: Callable[[], None]) -> None:
        self._inner = inner
        self._at = at
        self._action = action
        self._calls = 0
        self._lock = threading.Lock()
        self.armed = False
        self.fired = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                if self.armed and not self.fired:
                    self._calls += 1
                    if self._calls == self._at:
                        self.fired = True
                        self._action()
            return value(*args, **kwargs)

        return call


def _interrupted(uri: str, at: int, action: Callable[[], None]) -> tuple[Any, _Interrupter]:
    opened = create.open_store
    made: list[_Interrupter] = []

    def open_interrupted(*args: Any, **kwargs: Any) -> Any:
        made.append(_Interrupter(opened(*args, **kwargs), at, action))
        return made[-1]

    with patch.object(create, "open_store", open_interrupted):
        table = mw.open_table(uri)
    return table, made[-1]


def _at_every_request(
    build: Callable[[str], Any],
    folder: Path,
    action: Callable[[str, Any], None],
    check: Callable[[dict[int, int]], None],
    *,
    warm: bool,
) -> int:
    """Interrupt a strong read of a fresh table at each of its requests in turn."""
    at = 0
    while True:
        at += 1
        uri = str(folder / f"table{at}{warm}")
        writer = build(uri)
        with as_another_process():
            table, interrupter = _interrupted(uri, at, lambda: action(uri, writer))  # noqa: B023
            if warm:
                _read(table)
            interrupter.armed = True
            found = _read(table)
            check(found)
            interrupter.armed = False
            check(_read(table))
        writer.close()
        shutil.rmtree(uri, ignore_errors=True)
        if not interrupter.fired:
            return at - 1


def _with_tail(uri: str) -> Any:
    """Flushed generations, and rows in the WAL only."""
    lance.write_dataset(_rows(*((i, 0) for i in range(10))), uri)
    writer = mw.enable(uri, primary_key="id").writer()
    writer.upsert(_rows((1, 1), (2, 1)))
    writer.flush()
    writer.upsert(_rows((1, 2), (3, 2)))
    writer.flush()
    writer.upsert(_rows((3, 3), (4, 3)))
    writer.delete(_keys(9))
    return writer


TAIL_STATE = {**dict.fromkeys(range(9), 0), 1: 2, 2: 1, 3: 3, 4: 3}


def _collect_flushed(uri: str) -> None:
    """What garbage collection does to the WAL (protocol rule 21): flushed entries go, but for
    fences and the last one."""
    store = open_store(uri)
    for region_id, manifest in merging.manifests(uri).items():
        for path in (Path(uri) / "_mem_wal" / str(region_id) / "wal").iterdir():
            position = int(path.stem[::-1], 2)
            flushed = manifest.replay_after_wal_entry_position
            if position < flushed and b"fence_sentinel" not in path.read_bytes():
                store.delete([str(path.relative_to(uri))])


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_flush_at_any_moment_of_a_strong_read_hides_no_row(tmp_path: Path, warm: bool) -> None:
    """Protocol rule 15: "not found at p" ends the tail only if nothing flushed it meanwhile."""

    def flush_and_collect(uri: str, writer: Any) -> None:
        writer.flush()
        _collect_flushed(uri)

    def check(found: dict[int, int]) -> None:
        assert found == TAIL_STATE

    requests = _at_every_request(_with_tail, tmp_path, flush_and_collect, check, warm=warm)
    assert requests >= 2


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_merge_at_any_moment_of_a_strong_read_changes_nothing(tmp_path: Path, warm: bool) -> None:
    """Protocol rule 14: a stale list of generations over a newer base returns old rows."""

    def merge(uri: str, writer: Any) -> None:
        (region_id,) = merging.manifests(uri)
        merging.merge_one(uri, region_id, ["id"])

    def check(found: dict[int, int]) -> None:
        assert found == TAIL_STATE

    requests = _at_every_request(_with_tail, tmp_path, merge, check, warm=warm)
    assert requests >= 2


def _drop_merged(uri: str, region_id: UUID) -> None:
    """Take merged generations out of the manifest, then their folders (protocol rule 21)."""
    merged = merging.merged_generations(uri)[region_id]
    manifests = RegionManifests(open_store(uri), region_id)
    latest = manifests.latest()
    kept = tuple(g for g in latest.flushed_generations if g.generation > merged)
    manifests.commit(latest, flushed_generations=kept)
    for gone in latest.flushed_generations:
        if gone.generation <= merged:
            shutil.rmtree(Path(uri) / "_mem_wal" / str(region_id) / gone.path)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_merge_and_collection_at_any_moment_of_a_strong_read_changes_nothing(
    tmp_path: Path, warm: bool
) -> None:
    """Protocol rule 14: a missing folder means again, it is never skipped."""

    def merge_and_collect(uri: str, writer: Any) -> None:
        (region_id,) = merging.manifests(uri)
        merging.merge_one(uri, region_id, ["id"])
        _drop_merged(uri, region_id)

    def check(found: dict[int, int]) -> None:
        assert found == TAIL_STATE

    requests = _at_every_request(_with_tail, tmp_path, merge_and_collect, check, warm=warm)
    assert requests >= 2


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_write_at_any_moment_of_a_strong_read_is_seen_whole_or_not_at_all(
    tmp_path: Path, warm: bool
) -> None:
    def write(uri: str, writer: Any) -> None:
        writer.upsert(_rows((0, 9), (5, 9), (60, 9)))
        writer.flush()

    after = {**TAIL_STATE, 0: 9, 5: 9, 60: 9}

    def check(found: dict[int, int]) -> None:
        assert found in (TAIL_STATE, after)

    _at_every_request(_with_tail, tmp_path, write, check, warm=warm)


def test_a_region_that_appears_is_seen_by_the_next_strong_read(tmp_path: Path) -> None:
    """Protocol rule 15: every strong read looks for new regions."""
    uri = str(tmp_path / "table")
    mw.create_table(uri, SCHEMA, primary_key="id", regions=[mw.identity("id")])
    reader = mw.open_table(uri)
    with mw.open_table(uri).writer() as writer:
        for key in range(4):
            writer.upsert(_rows((key, key)))
            with as_another_process():
                assert _read(reader) == {k: k for k in range(key + 1)}
                assert reader.get([key])["n"].to_pylist() == [key]


# Rule 16: caches


def test_a_base_version_number_used_again_for_other_rows_is_not_read_from_a_cache(
    table: Any, uri: str
) -> None:
    """Protocol rule 16: caches are keyed by the manifest's e-tag, not by its version."""
    with table.writer() as writer:
        writer.upsert(_rows((1, 7), (100, 9)))
        writer.flush()
    assert _read(table)[1] == 7
    saved = Path(uri + ".saved")
    shutil.copytree(uri, saved)
    lance.write_dataset(_rows((100, 1)), uri, mode="append")
    assert _read(table)[100] == 9  # the generation makes the base table's last row stale
    # The folder goes back to an older state, and the same version is written again, otherwise.
    shutil.rmtree(uri)
    shutil.move(saved, uri)
    assert _read(table)[100] == 9
    lance.write_dataset(_rows((200, 2)), uri, mode="append")
    for handle in (table, mw.open_table(uri)):
        found = _read(handle)
        assert found[200] == 2 and found[100] == 9 and found[1] == 7
        assert handle.get([100, 200])["n"].to_pylist() == [9, 2]


def test_a_growing_memtable_makes_older_rows_stale_at_once(table: Any) -> None:
    """Protocol rule 16: stale sets are properties of a pair (source, newer sources)."""
    with table.writer() as writer:
        for number in range(1, 30):
            key = number % 5
            writer.upsert(_rows((key, number)))
            found = _read(table)
            assert found[key] == number and len(found) == 10
            if number % 10 == 0:
                writer.flush()
                assert _read(table) == found


# Eventual and manifest


@pytest.mark.parametrize("consistency", ["manifest", "eventual"])
def test_weaker_reads_show_an_earlier_state_and_no_mixture(
    table: Any, uri: str, consistency: str
) -> None:
    """Every batch writes one number to a pair of keys: a mixture would show two."""
    pairs = ((1, 2), (3, 4))
    states = [_read(table)]
    rng = Random(3)
    with table.writer(memtable_rows=6) as writer:
        for number in range(1, 40):
            a, b = pairs[number % 2]
            writer.upsert(_rows((a, number), (b, number)))
            states.append({**states[-1], a: number, b: number})
            if rng.random() < 0.2:
                writer.flush()
            if rng.random() < 0.3:
                (region_id,) = merging.manifests(uri)
                merging.merge_one(uri, region_id, ["id"])
            found = _read(table, consistency)
            assert found in states


def test_weaker_reads_never_go_back(table: Any) -> None:
    seen = 0
    with table.writer(memtable_rows=5) as writer:
        for number in range(1, 60):
            writer.upsert(_rows((1, number), (2, number)))
            found = _read(table, "manifest")
            assert found[1] == found[2] >= seen
            seen = found[1]
        writer.flush()
        assert _read(table, "manifest")[1] == 59


def test_time_travel_reads_the_version_it_was_asked_for(table: Any, uri: str) -> None:
    """Protocol rule 18: a version without a recorded snapshot reads as the base alone."""
    before = lance.dataset(uri).version
    with table.writer() as writer:
        writer.upsert(_rows((1, 7)))
        writer.flush()
    (region_id,) = merging.manifests(uri)
    merging.merge_one(uri, region_id, ["id"])
    assert _read(mw.open_table(uri))[1] == 7
    with pytest.warns(mw.UnrecordedVersionWarning, match="base table alone"):
        old = mw.open_table(uri, version=before)
    assert _read(old, "eventual")[1] == 0


# Concurrency


def test_no_reader_sees_a_batch_half_while_writers_flush_and_merge(tmp_path: Path) -> None:
    """Four key groups in two regions, one counter a group: every read sees each group whole, at or
    after what was acknowledged before the read began, and never going back."""
    uri = str(tmp_path / "table")
    schema = pa.schema([SCHEMA.field("id"), pa.field("g", pa.int64(), False), SCHEMA.field("n")])
    groups = {g: [g * 10 + i for i in range(5)] for g in range(4)}
    start = pa.table(
        {
            "id": [k for keys in groups.values() for k in keys],
            "g": [g for g, keys in groups.items() for _ in keys],
            "n": [0] * 20,
        },
        schema=schema,
    )
    lance.write_dataset(start, uri)
    table = mw.enable(uri, primary_key=["g", "id"], regions=[mw.expression("col0 % 2", "g")])
    acknowledged = dict.fromkeys(groups, 0)
    stop = time.monotonic() + 4.0
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while time.monotonic() < stop and not errors:
                    work()
            except BaseException as error:
                errors.append(error)

        return run

    writer = table.writer(memtable_rows=60)

    def write(mine: list[int]) -> Callable[[], None]:
        def work() -> None:
            for g in mine:
                number = acknowledged[g] + 1
                keys = groups[g]
                writer.upsert(
                    pa.table({"id": keys, "g": [g] * 5, "n": [number] * 5}, schema=schema)
                )
                acknowledged[g] = number

        return work

    def read(handle: Any, how: str) -> Callable[[], None]:
        context = datafusion.SessionContext()
        mw.register(context, "t", handle)
        last = dict.fromkeys(groups, 0)

        def work() -> None:
            floor = dict(acknowledged)
            if how == "sql":
                rows = context.sql("SELECT g, n FROM t WHERE n >= 0").to_arrow_table()
            elif how == "get":
                keys = [(g, k) for g, ks in groups.items() for k in ks]
                rows = handle.get(keys, columns=["g", "n"])
            else:
                rows = handle.scan(columns=["g", "n"]).read_all()
            assert rows.num_rows == 20, f"{how}: {rows.num_rows} rows"
            for g in groups:
                seen = {
                    n
                    for group, n in zip(rows["g"].to_pylist(), rows["n"].to_pylist(), strict=True)
                    if group == g
                }
                assert len(seen) == 1, f"{how}: group {g} is a mixture of {sorted(seen)}"
                (number,) = seen
                assert number >= floor[g], f"{how}: {number} was read, {floor[g]} acknowledged"
                assert number >= last[g], f"{how}: {number} after {last[g]}"
                last[g] = number

        return work

    def merge() -> None:
        time.sleep(0.05)
        for region_id in merging.manifests(uri):
            merging.merge_one(uri, region_id, ["g", "id"])

    works = [
        write([0, 1]),
        write([2, 3]),
        merge,
        read(table, "scan"),
        read(table, "sql"),
        read(mw.open_table(uri), "get"),
    ]
    threads = [threading.Thread(target=guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    writer.close()
    assert min(acknowledged.values()) > 3, f"the test was too slow to mean much: {acknowledged}"
