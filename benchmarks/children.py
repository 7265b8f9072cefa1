"""Processes that benchmarks start and watch: `python -m benchmarks.children NAME ARGUMENTS`."""

from __future__ import annotations

import os
import signal
import sys
import time
from math import inf
from pathlib import Path

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_sql as mw
from benchmarks.merging import GENERATIONS, vector_rows
from benchmarks.several_writers import batch_of
from benchmarks.support.child import ready, until_told
from benchmarks.support.data import VECTORS, checksum, vector_batches
from benchmarks.support.timing import lower_quartile, seconds
from memwal_sql.cli.app import give_way

_ROUNDS = 9
# Of the soak.
KEYS = 40_000
WIDTH = 16
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "step": pa.int64(),
        "vec": pa.list_(pa.float32(), WIDTH),
        "body": pa.string(),
    }
)
_BATCH = 500
_DELETED = 20  # one key of so many is deleted, until its turn comes again
_MEMTABLE_ROWS = 4_000
_PAUSE_SECONDS = 0.2

Numbers = npt.NDArray[np.int64]


def stream(kind: str, uri: str) -> None:
    """Stream every row of a table, ours or a plain Lance one: print its row count and sums."""
    ready()
    rows = mw.open_table(uri).scan() if kind == "ours" else lance.dataset(uri).to_batches()
    total: list[int] = []
    for batch in rows:
        sums = checksum(pa.Table.from_batches([batch]))
        total = [a + b for a, b in zip(total, sums, strict=True)] if total else list(sums)
    print(*(number % 2**64 for number in total))


def open_table(uri: str, consistency: str) -> None:
    """Open a table and take one snapshot: print the seconds, and the numbers of regions and
    generations."""
    ready()
    start = time.perf_counter()
    snapshot = mw.open_table(uri).snapshot(consistency)
    taken = time.perf_counter() - start
    generations = sum(len(region.sources) for region in snapshot.regions)
    print(taken, len(snapshot.regions), generations)


def first_scan(ours: str, copy: str, plain: str, *columns: str) -> None:
    """Warm plain scans, then the first scan of a table of ours after opening it: print the seconds
    of both and whether they hold the same rows.

    A process of its own, as what is known of a table is shared by all handles of a process. The
    plain scans come first, and one of a copy of our table, so that what a process does once is in
    neither time: Lance's start and ours, and the first memory that their allocators get.
    """
    ready()
    names = list(columns)
    dataset = lance.dataset(plain)
    expected = dataset.to_table(columns=names)
    baseline = lower_quartile(
        [seconds(lambda: dataset.to_table(columns=names)) for _ in range(_ROUNDS)]
    )
    mw.open_table(copy).scan(columns=names).read_all()
    table = mw.open_table(ours)
    scans: list[pa.Table] = []
    first = seconds(lambda: scans.append(table.scan(columns=names).read_all()))
    print(first, baseline, checksum(scans[0]) == checksum(expected))


def merge(kind: str, uri: str, rows: str) -> None:
    """One merge, of a table of ours or by plain Lance in one commit: print its seconds, and the row
    count and sum of ids afterwards.

    `rows` is the Lance dataset of the newest rows, for the kinds `scan` and `index`: whether the
    merge looks for keys by scanning them or by their btree.
    """
    ready()
    table = mw.open_table(uri) if kind == "ours" else None

    def merged() -> object:
        if table is not None:
            return table.merge()
        insert = lance.dataset(uri).merge_insert("id").use_index(kind == "index")
        insert = insert.when_matched_update_all().when_not_matched_insert_all()
        return insert.execute(lance.dataset(rows).to_table())

    taken = seconds(merged)
    ids = lance.dataset(uri).to_table(columns=["id"])["id"]
    print(taken, len(ids), sum(chunk.to_numpy().sum() for chunk in ids.chunks))


def merge_steps(uri: str, base_rows: str, rows: str) -> None:
    """Print a line at the start, and one for each step that was read from the input and is done:
    "flush" writes some generations of `rows` rows, "merge" and "index" are what `memwal` does."""
    give_way()
    table = mw.open_table(uri)
    random = np.random.default_rng(11)
    with table.writer(durable=False, memtable_rows=int(rows) + 1) as writer:
        print("ready", flush=True)
        for step in map(str.strip, sys.stdin):
            if step == "flush":
                for _ in range(GENERATIONS):
                    ids = random.choice(int(base_rows), int(rows), replace=False)
                    writer.upsert(vector_rows(ids, int(random.integers(1 << 32))))
                    writer.flush()
            elif step == "merge":
                table.merge()
            else:
                table.build_indexes()
            print("done", flush=True)


def rows_of(ids: Numbers, step: int) -> pa.Table:
    """One row an id, as the writer writes it at a step."""
    random = np.random.default_rng(step)
    words = random.integers(0, 100, (len(ids), 5))
    vectors = random.random(len(ids) * WIDTH, dtype=np.float32)
    columns = [
        pa.array(ids),
        pa.array(np.full(len(ids), step)),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors), WIDTH).cast(SCHEMA.field("vec").type),
        pa.array([" ".join(f"word{word}" for word in row) for row in words]),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def soak(uri: str) -> None:
    """Write the same keys round after round until the input ends; then `steps.npy` beside the
    table: the last step of each key, -1 for deleted ones."""
    table = mw.open_table(uri)
    stop = until_told()
    steps, step, start = np.zeros(KEYS, np.int64), 0, 0
    with table.writer(memtable_rows=_MEMTABLE_ROWS) as writer:
        while not stop.wait(_PAUSE_SECONDS):
            step += 1
            ids = np.arange(start, start + _BATCH) % KEYS
            writer.upsert(rows_of(ids, step))
            steps[ids] = step
            gone = ids[step % _DELETED :: _DELETED]
            writer.delete(pa.table({"id": gone}))
            steps[gone] = -1
            start = (start + _BATCH) % KEYS
    np.save(Path(uri).parent / "steps.npy", steps)


def write_beside(uri: str, until: str, kind: str, number: str) -> None:
    """Upsert as long as told, beside other processes: `{number}.npy` in the table's folder has the
    begin and the end of each call. `kind` is that of `several_writers`; one that is dying kills
    itself between two calls."""
    own = int(number)
    table, calls, folder = mw.open_table(uri), list[tuple[float, float]](), Path(uri)
    dying = kind == "dying" and own == 0
    writer = table.writer(turns=kind != "reopened")
    ready()
    stop = inf if until == "until" else time.monotonic() + float(until)
    dies = time.monotonic() + float(until) / 2 if dying else inf
    while time.monotonic() < stop and not (folder / "stop").exists():
        rows, begin = batch_of(own, len(calls)), time.monotonic()
        while True:
            try:
                writer.upsert(rows)
                break
            except mw.FencedError:
                writer.close()
                writer = table.writer(turns=False)
        calls.append((begin, time.monotonic()))
        if calls[-1][1] > dies:
            np.save(folder / number, np.array(calls))
            os.kill(os.getpid(), signal.SIGKILL)
    np.save(folder / number, np.array(calls))
    writer.close()
    print("done", flush=True)


def write_stream(uri: str, size: str) -> None:
    """Upsert a generator of vectors into a new table of four regions, and flush: print the rows."""
    table = mw.create_table(uri, VECTORS, primary_key="id", regions=[mw.bucket("id", 4)])
    ready()
    with table.writer() as writer:
        print(writer.upsert(vector_batches(int(size))).rows)
        writer.flush()


def write_call(uri: str, size: str) -> None:
    """The same of a table that is in memory before, without a flush."""
    table = mw.create_table(uri, VECTORS, primary_key="id", regions=[mw.bucket("id", 4)])
    vectors = pa.Table.from_batches(list(vector_batches(int(size))))
    ready()
    with table.writer() as writer:
        print(writer.upsert(vectors).rows)


def merge_all(uri: str, size: str) -> None:
    """Merge all generations: print the rows."""
    del size
    table = mw.open_table(uri)
    ready()
    table.merge()
    print(lance.dataset(uri).count_rows())


_CHILDREN = {
    "stream": stream,
    "write_beside": write_beside,
    "open": open_table,
    "first-scan": first_scan,
    "merge": merge,
    "merge-steps": merge_steps,
    "write-stream": write_stream,
    "write-call": write_call,
    "merge-all": merge_all,
    "soak": soak,
}

if __name__ == "__main__":
    _CHILDREN[sys.argv[1]](*sys.argv[2:])
