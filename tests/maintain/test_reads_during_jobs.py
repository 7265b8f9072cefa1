"""Readers, a writer, mergers, an index builder and a compactor at once: every answer is of a state
that was (issue "What must be shown")."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.maintain.merging_tables import as_rows, rows_of
from tests.model.writing import session_of
from tests.soak import SOAK

SECONDS = 0.5 * SOAK
WIDTH = 4
VECTOR = pa.list_(pa.float32(), WIDTH)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("val", pa.int64()), ("vec", VECTOR), ("body", pa.string())]
)
# Keys of one group are in one region and are always written together.
GROUPS = 6
SIZE = 40
GONE = 1000  # these keys are there after every even write of their group


def _rows(group: int, number: int) -> pa.Table:
    ids = [group + GROUPS * n for n in range(SIZE)]
    if number % 2 == 0:
        ids.append(GROUPS * GONE + group)
    return pa.table(
        {
            "id": ids,
            "val": [number] * len(ids),
            "vec": pa.array([[float(n), group, 0.0, 0.0] for n in ids], VECTOR),
            "body": [f"group{group} write{number}" for _ in ids],
        },
        schema=SCHEMA,
    )


def _expected(group: int, number: int) -> dict[int, int]:
    return dict.fromkeys(_rows(group, number)["id"].to_pylist(), number)


class Scene:
    """The table, and for each group the last write that was acknowledged."""

    def __init__(self, uri: str) -> None:
        start = pa.concat_tables([_rows(group, 0) for group in range(GROUPS)])
        lance.write_dataset(start, uri)
        self.table = mw.enable(uri, "id", regions=[mw.expression(f"col0 % {GROUPS}", "id")])
        self.table.create_index("vec", "IVF_FLAT", num_partitions=2)
        self.table.create_index("body", "FTS")
        self.acknowledged = [0] * GROUPS
        self.stop = threading.Event()
        self.failures: list[BaseException] = []

    def write(self, writer: Any, number: int) -> None:
        group = number % GROUPS
        write = self.acknowledged[group] + 1
        writer.upsert(_rows(group, write))
        # Both are durable before the group counts as written; in between it is neither.
        if write % 2:
            writer.delete([GROUPS * GONE + group])
        self.acknowledged[group] = write
        if number % 7 == 0:
            writer.flush()

    def check_rows(self, rows: dict[int, int], before: list[int]) -> None:
        """Whole groups, none older than `before`; the last key comes and goes in between."""
        for group in range(GROUPS):
            numbers = {rows[key] for key in _expected(group, 1)}
            assert len(numbers) == 1, f"group {group} is mixed: {numbers}"
            (number,) = numbers
            assert number >= before[group], f"group {group} went back to {number}"
            last = rows.get(GROUPS * GONE + group)
            allowed = {number} if number % 2 == 0 else {None, number - 1}
            assert last in allowed, f"group {group} of {number} has {last}"
        assert len(rows) <= GROUPS * (SIZE + 1)


@contextmanager
def _running(scene: Scene, *jobs: Callable[[], None]) -> Iterator[None]:
    def run(job: Callable[[], None]) -> None:
        try:
            while not scene.stop.is_set():
                job()
        except BaseException as error:
            scene.failures.append(error)
            scene.stop.set()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        scene.stop.set()
        for thread in threads:
            thread.join(60)


KEYS = [*range(GROUPS * SIZE), *(GROUPS * GONE + group for group in range(GROUPS))]
WORDS = " ".join(f"group{group}" for group in range(GROUPS))
SELECT = "SELECT id, val FROM t WHERE val >= 0"
READS: tuple[Callable[[mw.Table], pa.Table], ...] = (
    lambda table: table.scan().read_all(),
    lambda table: session_of("t", table).sql(SELECT).to_arrow_table(),
    lambda table: table.get(KEYS, ["id", "val"]),
    lambda table: table.vector_search("vec", [0.0] * WIDTH, GROUPS * (SIZE + 1), nprobes=2),
    lambda table: table.full_text_search("body", WORDS, GROUPS * (SIZE + 1)),
)


def _read(scene: Scene, table: mw.Table) -> None:
    for level in ("manifest", "eventual"):
        scene.check_rows(rows_of(table, level), [0] * GROUPS)
    for read in READS:
        before = list(scene.acknowledged)
        scene.check_rows(as_rows(read(table)), before)
    nearest = table.vector_search("vec", [13.0, 1.0, 0.0, 0.0], 1, nprobes=2)
    assert nearest["id"].to_pylist() == [13]


@pytest.mark.timeout(600)
def test_every_answer_is_of_a_state_that_was(tmp_path: Path) -> None:
    scene = Scene(str(tmp_path / "t"))
    uri = scene.table.uri
    number = 0
    merged, compacted = list[int](), list[int]()

    def write() -> None:
        nonlocal number
        number += 1
        scene.write(writer, number)
        time.sleep(0.002)

    def merge(handle: mw.Table) -> Callable[[], None]:
        def job() -> None:
            merged.append(handle.merge())
            time.sleep(0.02)

        return job

    def build() -> None:
        builder.build_indexes()
        time.sleep(0.05)

    def compact() -> None:
        compacted.append(compactor.compact(fragments=2))
        time.sleep(0.05)

    builder, compactor = mw.open_table(uri), mw.open_table(uri)
    readers = [mw.open_table(uri) for _ in range(2)]
    with scene.table.writer(memtable_rows=500) as writer:
        jobs = (write, merge(mw.open_table(uri)), merge(mw.open_table(uri)), build, compact)
        with _running(scene, *jobs):
            end = time.monotonic() + SECONDS
            rounds = 0
            while (
                time.monotonic() < end or not (any(merged) and any(compacted))
            ) and not scene.stop.is_set():
                for table in (scene.table, *readers):
                    _read(scene, table)
                rounds += 1
    assert not scene.failures, scene.failures
    assert rounds and any(merged), (rounds, merged)
    last: dict[int, int] = {}
    for group in range(GROUPS):
        last |= _expected(group, scene.acknowledged[group])
    assert rows_of(mw.open_table(uri)) == last
