"""Upserts, aggregates and lookups in turns, and scans of a table of which a tenth was replaced."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import memwal_sql as mw
from benchmarks.support.data import batches, check_same, merged, rows, shuffled
from benchmarks.support.feed import Feed
from benchmarks.support.result import Result, at_most_ratio, beside
from benchmarks.support.timing import interleaved, seconds
from benchmarks.support.workspace import Workspace, enabled_table, plain_table

# After so many upserts there is an aggregate, and so many lookups.
EVERY, LOOKUPS = 10, 10
_AGGREGATE = "SELECT count(*), avg(val) FROM events"


def mixed(work: Workspace) -> Iterator[Result]:
    """Durable upserts of random keys with an aggregate and lookups now and then, as a program that
    follows a feed does. Each query meets rows that no query has seen."""
    feed = Feed(work.sizes)
    table = enabled_table(work.folder / "mixed", feed.base)
    plain = plain_table(work.folder / "mixed-plain", feed.base)
    context = datafusion.SessionContext()
    mw.register(context, "events", table)
    answers: dict[str, Any] = {}

    def aggregate() -> None:
        answers["aggregate"] = context.sql(_AGGREGATE).to_arrow_table()

    def plain_aggregate() -> None:
        pc.mean(plain.to_table(columns=["val"])["val"])

    times: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[[], object]) -> None:
        times.setdefault(name, []).append(seconds(call))

    def in_turns(works: Mapping[str, Callable[[], object]]) -> None:
        """What comes first finds no code of Lance in the processor's caches."""
        name = next(iter(works))
        even = len(times.get(name, ())) % 2 == 0
        for name, call in works.items() if even else reversed(works.items()):
            timed(name, call)

    def looked_up(name: str) -> None:
        key = feed.key()
        ours = {name: lambda: answers.update(row=table.get([key]))}
        in_turns(ours | {f"plain {name}": lambda: plain.to_table(filter=f"id = {key}")})
        feed.check_row(key, answers["row"]["val"].to_pylist(), "ours")

    parts = []
    with table.writer() as writer:
        for number, part in enumerate(feed.upserts(), 1):
            parts.append(part)
            writer.upsert(part)
            if number % EVERY:
                looked_up("lookup")
                continue
            gc.collect()
            in_turns({"aggregate": aggregate, "plain": plain_aggregate})
            count, mean = answers["aggregate"]
            feed.check_aggregate(count[0].as_py(), mean[0].as_py(), "ours")
            timed("again", aggregate)
            for _ in range(LOOKUPS):
                looked_up("in a row")
        check_same(table.to_arrow(), merged([feed.base, *parts]), "mixed work")
    medians = {name: median(measured) for name, measured in times.items()}
    size, other = work.sizes.append_rows, "plain Lance"
    name = f"count(*), avg after {EVERY} upserts of {size:,} random keys"
    yield at_most_ratio(name, medians["aggregate"], medians["plain"], other, 2)
    yield beside(f"{name}, asked again", medians["again"], medians["plain"], other)
    name = f"table.get after each upsert of {size:,} random keys"
    yield at_most_ratio(name, medians["lookup"], medians["plain lookup"], other, 1.2)
    name = f"table.get, {LOOKUPS} after {EVERY} upserts of {size:,} random keys"
    yield beside(name, medians["in a row"], medians["plain in a row"], other)


def replaced_scan(work: Workspace) -> Iterator[Result]:
    """All columns of a large table of which a tenth was replaced, in flushed generations; against
    Lance where these rows were deleted and written anew."""
    count = work.sizes.replaced_rows
    base = rows(np.arange(count, dtype=np.int64), 0)
    newer = rows(shuffled(count)[: count // 10], 1)
    table = enabled_table(work.folder / "replaced", base)
    with table.writer(durable=False) as writer:
        for batch in batches(newer, work.sizes.stream_batch):
            writer.upsert(batch)
        writer.flush()
    plain = _deleted_and_written(work.folder / "replaced-plain", base, newer)
    check_same(table.to_arrow(), plain.to_table(), "replaced rows")
    works = {"ours": table.to_arrow, "plain": plain.to_table}
    times = interleaved(works, min(work.sizes.rounds, 9))
    name = f"all columns of {count:,} rows, a tenth replaced"
    yield at_most_ratio(name, times["ours"], times["plain"], "plain Lance, deleted", 1.5)


def _deleted_and_written(folder: Any, base: pa.Table, newer: pa.Table) -> Any:
    plain = lance.write_dataset(base, folder)
    for batch in batches(newer.select(["id"]), 100_000):
        plain.delete(f"id IN ({','.join(map(str, batch.column(0).to_pylist()))})")
    return lance.write_dataset(newer, folder, mode="append")
