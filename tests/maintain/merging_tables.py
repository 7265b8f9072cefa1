"""Small tables whose regions have generations to merge, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import memwal_sql as mw
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.maintain.merge.passes import MAX_PASS_BYTES, Passes
from memwal_sql.maintain.progress import report_nothing
from memwal_sql.storage.base.merge_token import regions_in
from memwal_sql.table.maintaining import regions_now
from tests.model.merging import merged_generations

SCHEMA = pa.schema([("id", pa.int64()), ("val", pa.int64())])
# Upserts and deletes, one generation each.
GENERATIONS: tuple[tuple[dict[int, int], list[int]], ...] = (
    ({0: 1, 1: 1, 2: 1, 3: 1}, []),
    ({1: 2, 4: 2}, [0]),
    ({0: 3, 2: 3}, [4, 77]),
)


def make_table(
    folder: Path,
    generations: Iterable[tuple[dict[int, int], list[int]]] = GENERATIONS,
    regions: Any = None,
    schema: pa.Schema = SCHEMA,
) -> mw.Table:
    """A table with these generations, its writers closed."""
    table = mw.create_table(folder / "t", schema, "id", regions=regions)
    write_generations(table, generations)
    return table


def write_generations(
    table: mw.Table, generations: Iterable[tuple[dict[int, int], list[int]]]
) -> None:
    for upserts, deletes in generations:
        with table.writer(durable=False) as writer:
            if upserts:
                writer.upsert({"id": list(upserts), "val": list(upserts.values())})
            if deletes:
                writer.delete(deletes)
            writer.flush()


def expected(
    generations: Iterable[tuple[dict[int, int], list[int]]] = GENERATIONS,
) -> dict[int, int]:
    """The rows after all of them."""
    rows: dict[int, int] = {}
    for upserts, deletes in generations:
        rows.update(upserts)
        for key in deletes:
            rows.pop(key, None)
    return rows


def rows_of(table: mw.Table, consistency: str = "strong") -> dict[int, int]:
    """What a scan returns; a key twice is an error."""
    return as_rows(table.scan(consistency=consistency).read_all())


def in_base(uri: str, version: int | None = None) -> dict[int, int]:
    """What plain pylance reads."""
    return as_rows(lance.dataset(uri, version=version).to_table(columns=["id", "val"]))


def as_rows(found: pa.Table) -> dict[int, int]:
    rows = dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))
    assert len(rows) == found.num_rows, "a key is there twice"
    return rows


def progress_of(uri: str) -> dict[str, int]:
    """The merge progress by region id, as the specification has it."""
    marks = merged_generations(uri)
    return {str(region): g for region, g in regions_in(marks).items()}


def merger_of(table: mw.Table, max_pass_bytes: int = MAX_PASS_BYTES) -> Callable[[], int]:
    """The table's merge, in passes of at most so many bytes."""

    def merge() -> int:
        passes = Passes(table.context, report_nothing, max_pass_bytes)
        merger = Merger(table.context, partial(regions_now, table), passes.choose)
        base = table.tracker.latest()
        return merger.run(table.collector.registry.regions(base), base).total()

    return merge
