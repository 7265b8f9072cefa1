"""A flush, merge, collection or write at any moment of a strong read (protocol rules 14, 15)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import RegionManifests
from tests.model import merging
from tests.model.opened import opened_over
from tests.model.pairs import keys, read, rows
from tests.model.process import as_another_process


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
    table = opened_over(uri, lambda store: _Interrupter(store, at, action))
    return table, table._context.store


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
                read(table)
            interrupter.armed = True
            found = read(table)
            check(found)
            interrupter.armed = False
            check(read(table))
        writer.close()
        shutil.rmtree(uri, ignore_errors=True)
        if not interrupter.fired:
            return at - 1


def _with_tail(uri: str) -> Any:
    """Flushed generations, and rows in the WAL only."""
    lance.write_dataset(rows(*((i, 0) for i in range(10))), uri)
    writer = mw.enable(uri, primary_key="id").writer()
    writer.upsert(rows((1, 1), (2, 1)))
    writer.flush()
    writer.upsert(rows((1, 2), (3, 2)))
    writer.flush()
    writer.upsert(rows((3, 3), (4, 3)))
    writer.delete(keys(9))
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
        writer.upsert(rows((0, 9), (5, 9), (60, 9)))
        writer.flush()

    after = {**TAIL_STATE, 0: 9, 5: 9, 60: 9}

    def check(found: dict[int, int]) -> None:
        assert found in (TAIL_STATE, after)

    _at_every_request(_with_tail, tmp_path, write, check, warm=warm)
