"""Peak memory of streaming a table that is larger than what may be held, and of writing one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import SCHEMA, WrongResultError, batches, rows, shuffled, vectors_of
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


def writing_memory(work: Workspace) -> Iterator[Result]:
    """Write vectors by one call with a stream, with a table in memory, and merge them, each in a
    fresh process, with the defaults."""
    total = work.sizes.written_bytes
    call = total * 215 // 1_000
    uris = {kind: str(work.folder / f"memory-{kind}") for kind in ("stream", "call")}
    steps = [
        ("write-stream", uris["stream"], "an upsert of a stream", total, 0.6),
        ("write-call", uris["call"], "an upsert of a table", call, 1.5),
        ("merge-all", uris["stream"], "the merge of a stream", total, 0.8),
    ]
    for child, uri, what, size, limit in steps:
        answer = run_child(child, uri, str(size))
        if answer.words != [str(vectors_of(size))]:
            raise WrongResultError(f"{child}: {answer.words}")
        yield Result(
            f"peak memory of {what} of {size / 1e6:,.0f} MB",
            answer.peak_bytes / 1e6,
            "MB",
            size / 1e6,
            "rows",
            Reach(answer.peak_bytes / size, limit, "at most"),
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
