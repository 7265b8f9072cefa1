"""Merging generations of vectors and text into the base table, each time in a fresh process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import Ids, WrongResultError
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.sizes import Sizes
from benchmarks.support.timing import lower_quartile
from benchmarks.support.workspace import Workspace

WIDTH = 64
GENERATIONS = 4
_WORDS = 12
_VOCABULARY = np.array([f"word{n}" for n in range(5000)])
_VECTOR = pa.list_(pa.float32(), WIDTH)
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("vec", _VECTOR),
        pa.field("body", pa.string()),
    ]
)
_STEP = 250_000
_MEMORY_MB = 1_000
_KINDS = ("ours", "scan", "index")

_PART = 4  # of the rows of the merge benchmark: an index over them is trained here
_PARTITIONS = 64


def merging(work: Workspace) -> Iterator[Result]:
    """Four generations, half upserts and half new rows, against one plain commit of the same."""
    folder = work.folder / "merging"
    newest = _make(folder, work.sizes.base_rows, work.sizes.merge_rows)
    times: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    peaks: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for _ in range(work.sizes.merges):
        answers = set()
        for kind in _KINDS:
            copy = folder / "copy"
            shutil.copytree(folder / "table", copy, copy_function=_link)
            answer = run_child("merge", kind, str(copy), str(newest))
            shutil.rmtree(copy)
            times[kind].append(float(answer.words[0]))
            peaks[kind].append(answer.peak_bytes / 1e6)
            answers.add(tuple(answer.words[1:]))
        if len(answers) != 1:
            raise WrongResultError(f"merging: {answers}")
    best = min(("scan", "index"), key=lambda kind: lower_quartile(times[kind]))
    rows = f"{GENERATIONS} generations of {work.sizes.merge_rows:,} into {work.sizes.base_rows:,}"
    yield at_most_ratio(
        f"merge {rows}",
        lower_quartile(times["ours"]),
        lower_quartile(times[best]),
        "plain Lance, one commit",
        1.5,
    )
    peak = max(peaks["ours"])
    reach = Reach(peak, _MEMORY_MB, "at most", "MB")
    yield Result(f"peak memory of merging {rows}", peak, "MB", max(peaks[best]), "plain", reach)


def _make(folder: Path, base_rows: int, rows: int) -> Path:
    """The table with its generations, and where the newest row of each of their keys is."""
    steps = [range(at, min(at + _STEP, base_rows)) for at in range(0, base_rows, _STEP)]
    for seed, step in enumerate(steps):
        lance.write_dataset(vector_rows(np.array(step), seed), folder / "table", mode="append")
    table = mw.enable(folder / "table", primary_key="id")
    random = np.random.default_rng(7)
    parts = []
    with table.writer(durable=False, memtable_rows=rows + 1) as writer:
        for number in range(GENERATIONS):
            old = random.choice(base_rows, rows // 2, replace=False)
            fresh = np.arange(rows - rows // 2) + base_rows + number * rows
            parts.append(
                vector_rows(random.permutation(np.concatenate([old, fresh])), 100 + number)
            )
            writer.upsert(parts[-1])
            writer.flush()
    every = pa.concat_tables(parts)
    _, last = np.unique(every["id"].to_numpy()[::-1], return_index=True)
    lance.write_dataset(every.take(np.sort(len(every) - 1 - last)), folder / "newest")
    return folder / "newest"


def vector_rows(ids: Ids, seed: int) -> pa.Table:
    """One row an id: a vector and a text, both drawn by `seed`."""
    random = np.random.default_rng(seed)
    values = random.random(len(ids) * WIDTH, dtype=np.float32)
    words = _VOCABULARY[random.integers(0, len(_VOCABULARY), (len(ids), _WORDS))]
    columns = [
        pa.array(ids, pa.int64()),
        pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH).cast(_VECTOR),
        pa.array([" ".join(row) for row in words]),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def _link(source: str, target: str) -> None:
    """Copy what may be replaced; files of rows and indexes never change."""
    if source.endswith(".lance"):
        os.link(source, target)
    else:
        shutil.copy(source, target)


def indexed_table(uri: Path, sizes: Sizes) -> tuple[mw.Table, int, int]:
    """The table, how many rows it has, and how many are to be merged into it at a time."""
    base, rows = sizes.base_rows // _PART, sizes.merge_rows // _PART
    lance.write_dataset(vector_rows(np.arange(base), 0), uri)
    table = mw.enable(uri, primary_key="id")
    table.create_index("vec", "IVF_FLAT", num_partitions=_PARTITIONS)
    return table, base, rows
