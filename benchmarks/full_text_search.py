"""Full-text search over a tree of sources against one Lance index over the merged rows, and against
Lance on each source by itself, without replaced rows; upserts into MemTables with indexed texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import WrongResultError, batches, merged, shuffled
from benchmarks.support.result import Reach, Result, at_most_ratio, beside, faster_than
from benchmarks.support.texts import ANALYZER, documents, queries
from benchmarks.support.timing import interleaved, seconds
from benchmarks.support.workspace import Workspace
from exec_nodes.vectors.index_search import blocklist

_K = 10
_GENERATIONS = 3
_QUERIES = 10
_TOLERANCE = 3e-6
_MATCHED = "a frequent and a middling word"
_BATCH = 1_000
_DIMENSIONS = 64

Search = Callable[[str], pa.Table]


def full_text_search(work: Workspace) -> Iterator[Result]:
    """The ten best texts of a base table and three generations that replace 12% of it."""
    sizes = work.sizes
    ids = shuffled(sizes.text_rows)
    base = documents(np.sort(ids), 1)
    share = sizes.text_rows // 25
    newer = [
        documents(np.sort(ids[at * share : (at + 1) * share]), 2 + at) for at in range(_GENERATIONS)
    ]
    with _tree(work.folder / "texts", base, newer) as table:
        whole = _indexed(work.folder / "merged_texts", merged([base, *newer]))
        parts = [_indexed(work.folder / f"text_part_{i}", p) for i, p in enumerate([base, *newer])]
        stale = np.isin(base["id"].to_numpy(), np.concatenate([part["id"] for part in newer]))
        replaced = blocklist(np.flatnonzero(stale).astype(np.uint64))
        searches: dict[str, Search] = {
            "ours": lambda text: table.full_text_search("body", text, _K, columns=["id"]),
            "merged": lambda text: _lance(whole, text),
            "local": lambda text: _local(parts, replaced, text),
        }
        totals = dict.fromkeys(searches, 0.0)
        kinds = queries(_QUERIES, sizes.text_rows)
        for kind, texts in kinds.items():
            for text in texts:
                _check(searches["ours"](text), searches["merged"](text), text)
            times = _times(searches, texts, sizes.rounds)
            name = f"full-text top {_K}, {kind}"
            yield beside(name, times["ours"], times["merged"], "Lance, merged rows")
            totals = {name: total + times[name] / len(kinds) for name, total in totals.items()}
        matched = _times(_in_sql(table), kinds[_MATCHED], sizes.rounds)
    name, ours = f"full-text top {_K} of {sizes.text_rows:,} texts, mean", totals["ours"]
    yield at_most_ratio(name, ours, totals["merged"], "Lance, merged rows", 1.5)
    yield faster_than(name, ours, totals["local"], "Lance, local scores", 3)
    name = f"WHERE match of {sizes.text_rows:,} texts, {_MATCHED}"
    yield at_most_ratio(name, matched["match"], matched["search"], f"search, top {_K}, in SQL", 3)


def indexed_upserts(work: Workspace) -> Iterator[Result]:
    """Upserts into a MemTable whose texts and vectors can be searched when each call returns."""
    rows, dimensions = work.sizes.text_upserts, _DIMENSIONS
    random = np.random.default_rng(5)
    texts = documents(shuffled(rows), 9)
    numbers = pa.array(random.random(rows * dimensions, np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, dimensions)
    table = texts.append_column("embedding", vectors)
    folder = work.folder / "indexed_upserts"
    lance.write_dataset(table.slice(0, 1_000), folder)
    ours = mw.enable(folder, primary_key="id")
    ours.create_index("body", "FTS", **ANALYZER)
    ours.create_index("embedding", "IVF_FLAT", num_partitions=4)
    best = 0.0
    for _ in range(3):
        with ours.writer(durable=False) as writer:
            parts = batches(table, _BATCH)
            taken = seconds(lambda: [writer.upsert(batch) for batch in parts])  # noqa: B023
            best = max(best, rows / taken)
    name = f"upserts of {rows:,} rows, text and vector indexed"
    yield Result(name, best, "rows/s", reach=Reach(best, 25_000, "at least", "rows/s"))


@contextmanager
def _tree(folder: Path, base: pa.Table, newer: list[pa.Table]) -> Iterator[mw.Table]:
    lance.write_dataset(base, folder)
    table = mw.enable(folder, primary_key="id")
    table.create_index("body", "FTS", **ANALYZER)
    with table.writer(durable=False) as writer:
        for part in newer:
            for batch in batches(part, 10 * _BATCH):
                writer.upsert(batch)
            writer.flush()
        yield table


def _indexed(folder: Path, rows: pa.Table) -> Any:
    lance.write_dataset(rows, folder).create_scalar_index("body", "INVERTED", **ANALYZER)
    return lance.dataset(folder)


def _lance(dataset: Any, text: str, without: bytes | None = None) -> pa.Table:
    result: pa.Table = dataset.scanner(
        columns=["id", "_score"], full_text_query=text, limit=_K, row_addr_blocklist=without
    ).to_table()
    return result


def _local(parts: list[Any], replaced: bytes, text: str) -> pa.Table:
    """What the sources find by themselves, put together: the scores of one are not the other's.

    `replaced` are the rows of the first that the others have: they are live nowhere else.
    """
    masks = [replaced, *(None for _ in parts[1:])]
    results = [_lance(part, text, mask) for part, mask in zip(parts, masks, strict=True)]
    return pa.concat_tables(results).sort_by([("_score", "descending")]).slice(0, _K)


def _in_sql(table: mw.Table) -> dict[str, Search]:
    """All rows that have some words, and the best that have any of them."""
    context = datafusion.SessionContext()
    mw.register(context, "t", table)

    def ids(source: str) -> Search:
        query = f"SELECT id FROM {source}"
        return lambda text: context.sql(query.format(text)).to_arrow_table()

    return {
        "match": ids("t WHERE match(body, '{}')"),
        "search": ids(f"full_text_search('t', 'body', '{{}}', {_K})"),
    }


def _times(searches: dict[str, Search], texts: list[str], rounds: int) -> dict[str, float]:
    """Seconds of one query of each kind of search."""

    def all_of(search: Search) -> Callable[[], list[pa.Table]]:
        return lambda: [search(text) for text in texts]

    times = interleaved({name: all_of(search) for name, search in searches.items()}, rounds)
    return {name: taken / len(texts) for name, taken in times.items()}


def _check(ours: pa.Table, theirs: pa.Table, text: str) -> None:
    mine, other = ours["_score"].to_numpy(), theirs["_score"].to_numpy()
    if len(mine) != len(other) or not np.allclose(mine, other, rtol=_TOLERANCE):
        raise WrongResultError(f"the best texts for {text!r}: ours {mine}, Lance {other}")
    last = other[-1] * (1 + _TOLERANCE) if len(other) else 0
    above = [_ids_above(table, last) for table in (ours, theirs)]
    if above[0] != above[1]:
        raise WrongResultError(f"the best texts for {text!r}: ours {above[0]}, Lance {above[1]}")


def _ids_above(table: pa.Table, score: float) -> set[int]:
    return set(table["id"].to_numpy()[table["_score"].to_numpy() > score].tolist())
