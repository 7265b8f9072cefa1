"""Peak memory of streaming a table that is larger than what may be held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import SCHEMA, WrongResultError, batches, rows, shuffled
from benchmarks.support.result import Reach, Result
from benchmarks.support.workspace import Workspace, plain_table

_STEP = 500_000
_REGIONS = 4


def streaming_memory(work: Workspace) -> Iterator[Result]:
    """Stream a table of which one row in five was upserted, in a fresh process."""
    count = work.sizes.memory_rows
    newest = shuffled(count)[: count // 5]
    ours = _ours(work.folder / "memory", count, newest)
    live = lance.dataset(ours.uri).to_table()
    live = live.set_column(1, "val", _replaced(live["val"], newest, rows(newest, 1)["val"]))
    live = live.set_column(2, "name", _replaced(live["name"], newest, rows(newest, 1)["name"]))
    plain = plain_table(work.folder / "memory-plain", live)
    mine = run_child("stream", "ours", ours.uri)
    other = run_child("stream", "plain", plain.uri)
    if mine.words != other.words:
        raise WrongResultError(f"streaming: ours {mine.words}, plain {other.words}")
    yield Result(
        f"peak memory of streaming {count:,} rows, a fifth of them in generations",
        mine.peak_bytes / 1e6,
        "MB",
        other.peak_bytes / 1e6,
        "plain Lance",
        Reach(mine.peak_bytes / 1e6, 500, "at most", "MB"),
    )


def _ours(folder: Path, count: int, newest: np.ndarray) -> mw.Table:
    steps = range(0, count, _STEP)
    ids = (np.arange(at, min(at + _STEP, count), dtype=np.int64) for at in steps)
    base = pa.RecordBatchReader.from_batches(
        SCHEMA, (batch for seed, step in enumerate(ids) for batch in rows(step, seed).to_batches())
    )
    lance.write_dataset(base, folder)
    table = mw.enable(folder, primary_key="id", regions=[mw.bucket("id", _REGIONS)])
    with table.writer(durable=False) as writer:
        for batch in batches(rows(newest, 1), 20_000):
            writer.upsert(batch)
        writer.flush()
    return table


def _replaced(column: pa.ChunkedArray, at: np.ndarray, values: pa.ChunkedArray) -> pa.Array:
    """`column` (row i belongs to id i) with the rows of the ids `at` replaced."""
    place = np.arange(len(column))
    place[at] = len(column) + np.arange(len(at))
    return pa.chunked_array([*column.chunks, *values.chunks]).take(pa.array(place))
