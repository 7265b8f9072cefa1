"""Vector search while an index has not caught up with one merged generation."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np

import memwal_sql as mw
from benchmarks.merging import WIDTH, indexed_table, vector_rows
from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import Workspace

_K = 10


def index_gap(work: Workspace) -> Iterator[Result]:
    """The same table twice, of which one was indexed after its last merge."""
    folder = work.folder / "index-gap"
    behind, base, rows = indexed_table(folder / "behind", work.sizes)
    with behind.writer(durable=False, memtable_rows=rows + 1) as writer:
        writer.upsert(vector_rows(np.arange(base - rows // 2, base + rows - rows // 2), 1))
        writer.flush()
    behind.merge()
    shutil.copytree(folder / "behind", folder / "caught-up")
    caught_up = mw.open_table(folder / "caught-up")
    caught_up.build_indexes()
    queries = np.random.default_rng(3).random((64, WIDTH), dtype=np.float32)
    for query in queries[:8]:
        neighbours = [_search(table, query, exact=True) for table in (behind, caught_up)]
        if neighbours[0] != neighbours[1]:
            raise WrongResultError(f"index gap: {neighbours}")
    turns = {"behind": iter(_forever(queries)), "caught up": iter(_forever(queries))}
    times = interleaved(
        {
            "behind": lambda: _search(behind, next(turns["behind"])),
            "caught up": lambda: _search(caught_up, next(turns["caught up"])),
        },
        work.sizes.rounds,
        warm_up=5,
    )
    name = f"vector search, index behind by {rows:,} of {base:,} rows"
    yield at_most_ratio(name, times["behind"], times["caught up"], "caught up", 1.5)


def _search(table: mw.Table, query: np.ndarray, *, exact: bool = False) -> list[int]:
    neighbours: list[int] = table.vector_search("vec", query, _K, columns=["id"], exact=exact)[
        "id"
    ].to_pylist()
    return neighbours


def _forever(queries: np.ndarray) -> Iterator[np.ndarray]:
    while True:
        yield from queries
