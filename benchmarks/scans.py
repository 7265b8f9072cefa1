"""Full and filtered scans, warm and first, against plain Lance over the merged rows and native."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import WrongResultError, batches, check_same, merged, rows, shuffled
from benchmarks.support.native import native_scan
from benchmarks.support.result import Result, at_most_ratio, beside, faster_than
from benchmarks.support.timing import interleaved, lower_quartile
from benchmarks.support.workspace import Workspace, enabled_table, plain_table

_COLUMNS = ["id", "val"]
_WHERE = "val > 0.9"
_NATIVE_ROUNDS = 3
_ROUNDS_PER_CHILD = 3


def full_scan(work: Workspace) -> Iterator[Result]:
    """Two of three columns of every live row, warm."""
    ours, plain, writer = work.ours, work.plain, work.native_writer
    check_same(_scan(ours), work.live.select(_COLUMNS), "full scan")
    check_same(native_scan(writer, _COLUMNS), work.live.select(_COLUMNS), "native full scan")
    times = interleaved(
        {"ours": lambda: _scan(ours), "plain": lambda: plain.to_table(columns=_COLUMNS)},
        work.sizes.rounds,
    )
    name = "full scan of two columns, warm"
    yield at_most_ratio(name, times["ours"], times["plain"], "plain Lance", 1.3)
    against = interleaved(
        {"ours": lambda: _scan(ours), "native": lambda: native_scan(writer, _COLUMNS)},
        min(_NATIVE_ROUNDS, work.sizes.rounds),
        warm_up=1,
    )
    yield faster_than(name, against["ours"], against["native"], "native", 50)


def first_scan(work: Workspace) -> Iterator[Result]:
    """The first scan of a handle that was just opened, against a warm plain scan."""
    copy = work.folder / "ours-copy"
    shutil.copytree(work.ours.uri, copy)
    tables = (work.ours.uri, str(copy), work.plain.uri)
    arguments = ("first-scan", *tables, *_COLUMNS)
    pairs = []
    for _ in range(-(-work.sizes.rounds // _ROUNDS_PER_CHILD)):
        ours, plain, same = run_child(*arguments).words
        if same != "True":
            raise WrongResultError("first scan: other rows than the baseline")
        pairs.append((float(ours), float(plain)))
    first, warm = map(lower_quartile, zip(*pairs, strict=True))
    yield at_most_ratio("first scan after opening", first, warm, "plain Lance, warm", 4)


def filtered_scan(work: Workspace) -> Iterator[Result]:
    """A filter on a non-key column that keeps a tenth of the rows."""
    ours, plain, writer = work.ours, work.plain, work.native_writer
    expected = plain.to_table(columns=_COLUMNS, filter=_WHERE)
    check_same(_scan(ours, _WHERE), expected, "filtered scan")
    check_same(native_scan(writer, _COLUMNS, _WHERE), expected, "native filtered scan")
    times = interleaved(
        {
            "ours": lambda: _scan(ours, _WHERE),
            "plain": lambda: plain.to_table(columns=_COLUMNS, filter=_WHERE),
        },
        work.sizes.rounds,
    )
    name = "WHERE val > 0.9, a non-key column"
    yield at_most_ratio(name, times["ours"], times["plain"], "plain Lance", 1.5)
    against = interleaved(
        {
            "ours": lambda: _scan(ours, _WHERE),
            "native": lambda: native_scan(writer, _COLUMNS, _WHERE),
        },
        min(_NATIVE_ROUNDS, work.sizes.rounds),
        warm_up=1,
    )
    yield beside(name, against["ours"], against["native"], "native")


def generations_scan(work: Workspace) -> Iterator[Result]:
    """The same upserts in more and more generations, over the base and over an empty base."""
    sizes = work.sizes
    upserts = rows(shuffled(sizes.base_rows)[: 5 * sizes.source_rows], 1)
    for title, base in (("", work.upserts.base), (", empty base", work.upserts.base.slice(0, 0))):
        expected = merged([base, upserts])
        tables = {}
        for count in sizes.generation_counts:
            folder = work.folder / f"generations-{count}{'-alone' if title else ''}"
            tables[count] = _in_generations(enabled_table(folder, base), upserts, count)
            scanned = _scan(tables[count])
            check_same(scanned, expected.select(_COLUMNS), f"{count} generations")
        works = {str(count): (lambda table=table: _scan(table)) for count, table in tables.items()}
        plain = plain_table(work.folder / f"generations-plain{len(title)}", expected)
        works["plain"] = lambda plain=plain: plain.to_table(columns=_COLUMNS)
        times = interleaved(works, sizes.rounds)
        few, *more, many = (str(count) for count in sizes.generation_counts)
        name = f"scan of {upserts.num_rows:,} upserted keys in {{}} generations{title}"
        yield beside(name.format(few), times[few], times["plain"], "plain Lance")
        for some in more:
            yield beside(name.format(some), times[some], times[few], f"in {few}")
        if base.num_rows:
            yield at_most_ratio(name.format(many), times[many], times[few], f"in {few}", 2)
        else:
            yield beside(name.format(many), times[many], times[few], f"in {few}")


def _scan(table: mw.Table, where: str | None = None) -> pa.Table:
    return table.scan(columns=_COLUMNS, filter=where).read_all()


def _in_generations(table: mw.Table, upserts: pa.Table, count: int) -> mw.Table:
    size = -(-upserts.num_rows // count)
    with table.writer(durable=False, memtable_rows=2 * upserts.num_rows) as writer:
        for batch in batches(upserts, size):
            writer.upsert(batch)
            writer.flush()
    return table
