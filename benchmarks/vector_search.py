"""Vector search over a base table and four generations that replace 12% of it, against one Lance
index over the merged rows and against the peer's search of the same sources."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datafusion
import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.mem_wal import LsmVectorSearchPlanner

import memwal_sql as mw
from benchmarks.support.data import KEY, Ids, batches, merged, shuffled
from benchmarks.support.native import NativeTable
from benchmarks.support.result import Result, at_most_ratio, beside, faster_than
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import Workspace
from exec_nodes.resident.store import STORE, ResidentStore

_K = 10
_DIMENSIONS = 64
_GENERATIONS = 4
_BATCH = 1_000
_CLUSTER_ROWS = 400
_WARM_UP = 4
# With so many candidates measured exactly, the index over the merged rows has a recall of 0.99.
_PROBES, _REFINE = 20, 10
# One of so many rows is deleted before searches with filters that leave one of so many.
_DELETED, _PARTS = 7, (1, 10, 100)

Vectors = npt.NDArray[np.float32]
Search = Callable[[Vectors], pa.Table]


def vector_search(work: Workspace) -> Iterator[Result]:
    """The ten nearest of 200,000 vectors."""
    count, share = work.sizes.vector_rows, work.sizes.vector_rows * 3 // 100
    random = np.random.default_rng(6)
    centres = random.normal(size=(max(1, count // _CLUSTER_ROWS), _DIMENSIONS))
    ids = shuffled(count)
    base = _rows(np.arange(count, dtype=np.int64), centres, random)
    newer = [
        _rows(ids[at * share : (at + 1) * share], centres, random) for at in range(_GENERATIONS)
    ]
    live = merged([base, *newer])
    numbers = range(work.sizes.vector_queries)
    queries = [_noisy(centres[[i % len(centres)]], random)[0] for i in numbers]
    whole = _indexed(work.folder / "merged_vectors", live)
    native = _native(work.folder / "native_vectors", base, newer)
    with _tree(work.folder / "vectors", base, newer) as (table, writer):

        def ours(query: Vectors) -> pa.Table:
            return table.vector_search("v", query, _K)

        searches: dict[str, Search] = {
            "ours": ours,
            "merged": lambda query: _lance(whole, query),
            "native": native,
        }
        for search in searches.values():
            _warm_up(search, queries, work.sizes.settle_seconds)
        recall = {name: _recall(search, live, queries) for name, search in searches.items()}
        times = _times(searches, queries, work.sizes.rounds)
        sorts = {"ours": _sorting(_registered(table)), "plain": _sorting(_in_memory(live))}
        for query in queries[:2]:
            assert sorts["ours"](query).equals(sorts["plain"](query))
        sort_times = _times(sorts, queries, work.sizes.rounds)
        # The generations fit, the base table does not.
        bound = patch.object(ResidentStore, "largest", 2 * share * _DIMENSIONS * 4)
        STORE.evict_where("vectors", lambda _: True)
        with bound:
            searches = {"ours": ours, "merged": searches["merged"]}
            _warm_up(ours, queries, work.sizes.settle_seconds)
            indexed_recall = _recall(ours, live, queries)
            indexed = _times(searches, queries, work.sizes.rounds)
            writer.delete(pa.table({"id": np.arange(0, count, _DELETED)}))
            whole.delete(f"id % {_DELETED} = 0")
            filtered = list(_filtered(table, whole, live, queries, work.sizes.rounds))
    name = f"vector top {_K} of {count:,} x {_DIMENSIONS}, recall"
    whole_name = f"Lance, merged rows ({recall['merged']:.3f})"
    work_name = f"{name} {recall['ours']:.3f}"
    yield at_most_ratio(work_name, times["ours"], times["merged"], whole_name, 1.5)
    native_name = f"native ({recall['native']:.3f})"
    yield faster_than(work_name, times["ours"], times["native"], native_name, 10)
    work_name = f"ORDER BY array_distance LIMIT {_K} of {count:,} x {_DIMENSIONS}"
    plain_name = "DataFusion, rows in memory"
    yield faster_than(work_name, sort_times["ours"], sort_times["plain"], plain_name, 3)
    work_name = f"{name} {indexed_recall:.3f}, base too large for memory"
    yield beside(work_name, indexed["ours"], indexed["merged"], whole_name)
    yield from filtered


def _filtered(
    table: mw.Table, whole: Any, live: pa.Table, queries: list[Vectors], rounds: int
) -> Iterator[Result]:
    """With filters that leave all, a tenth and a hundredth of the rows, after deletes that are in
    memory only."""
    numbers = live["id"].to_numpy()
    for part in _PARTS:
        where = f"id % {part} = 0"
        searches: dict[str, Search] = {
            "ours": partial(table.vector_search, "v", k=_K, filter=where),
            "merged": partial(_lance, whole, where=where),
        }
        for search in searches.values():
            _warm_up(search, queries, 0.0)
        chosen = live.filter(pa.array((numbers % part == 0) & (numbers % _DELETED > 0)))
        recall = {name: _recall(search, chosen, queries) for name, search in searches.items()}
        times = _times(searches, queries, rounds)
        name = f"vector top {_K} of {len(chosen):,} filtered rows, 1 in {_DELETED} deleted, recall"
        yield beside(
            f"{name} {recall['ours']:.3f}",
            times["ours"],
            times["merged"],
            f"Lance, merged rows ({recall['merged']:.3f})",
        )


def _rows(ids: Ids, centres: npt.NDArray[Any], random: np.random.Generator) -> pa.Table:
    vectors = _noisy(centres[random.integers(0, len(centres), len(ids))], random)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), _DIMENSIONS)
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", column.type)])
    return pa.table([pa.array(ids), column], schema=schema)


def _noisy(centres: npt.NDArray[Any], random: np.random.Generator) -> Vectors:
    return (centres + random.normal(scale=0.5, size=centres.shape)).astype(np.float32)


@contextmanager
def _tree(
    folder: Path, base: pa.Table, newer: list[pa.Table]
) -> Iterator[tuple[mw.Table, mw.TableWriter]]:
    _indexed(folder, base)
    table = mw.enable(folder, primary_key="id")
    with table.writer(durable=False) as writer:
        for part in newer:
            for batch in batches(part, _BATCH):
                writer.upsert(batch)
            writer.flush()
        yield table, writer


def _native(folder: Path, base: pa.Table, newer: list[pa.Table]) -> Search:
    keyed = base.schema.set(0, base.schema.field(0).with_metadata(KEY))
    _indexed(folder, base.cast(keyed), "id")
    table = NativeTable(folder, maintained_indexes=["v_idx"])
    for part in newer:
        table.write_generation(batch.cast(keyed) for batch in batches(part, _BATCH))
    planner = LsmVectorSearchPlanner(table.dataset, [table.snapshot()], "v")

    def search(query: Vectors) -> pa.Table:
        return planner.plan_search(
            pa.array(query), _K, _PROBES, refine_base_table=True, overfetch_factor=_REFINE
        ).to_table()

    return search


def _indexed(folder: Path, rows: pa.Table, *scalar: str) -> Any:
    dataset = lance.write_dataset(rows, folder)
    partitions = max(1, min(256, rows.num_rows // 400))
    dataset.create_index("v", "IVF_PQ", name="v_idx", num_partitions=partitions, num_sub_vectors=16)
    for column in scalar:
        dataset.create_scalar_index(column, "BTREE")
    return lance.dataset(folder)


def _lance(dataset: Any, query: Vectors, where: str | None = None) -> pa.Table:
    nearest = {"column": "v", "q": query, "k": _K, "nprobes": _PROBES, "refine_factor": _REFINE}
    return dataset.scanner(nearest=nearest, filter=where, prefilter=True).to_table()


def _registered(table: mw.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return context


def _in_memory(rows: pa.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    context.register_record_batches("t", [rows.to_batches(max_chunksize=8192)])
    return context


def _sorting(context: datafusion.SessionContext) -> Search:
    sql = f"SELECT id, array_distance(v, $q) AS d FROM t ORDER BY d, id LIMIT {_K}"

    def search(query: Vectors) -> pa.Table:
        return mw.sql(context, sql, q=query.tolist()).to_arrow_table()

    return search


def _warm_up(search: Search, queries: list[Vectors], settle_seconds: float) -> None:
    """As in a process that has served for a while; what it reads in the background is done."""
    for _ in range(_WARM_UP):
        for query in queries:
            search(query)
    time.sleep(settle_seconds)


def _recall(search: Search, live: pa.Table, queries: list[Vectors]) -> float:
    """The share of the truly nearest live rows that are found."""
    vectors = live["v"].combine_chunks().flatten().to_numpy().reshape(-1, _DIMENSIONS)
    ids, hits = live["id"].to_numpy(), 0
    for query in queries:
        nearest = ids[np.argsort(((vectors - query) ** 2).sum(axis=1))[:_K]]
        hits += len(np.intersect1d(nearest, search(query)["id"].to_numpy()))
    return hits / (_K * len(queries))


def _times(searches: dict[str, Search], queries: list[Vectors], rounds: int) -> dict[str, float]:
    """Seconds of one search of each kind; each takes the next query every time."""

    def endless(search: Search) -> Callable[[], Any]:
        following = cycle(queries)
        return lambda: search(next(following))

    works = {name: endless(search) for name, search in searches.items()}
    return interleaved(works, 2 * rounds)
