"""How large the rows of a read are, by which Spark chooses what it broadcasts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from exec_nodes.base.tasks import map_concurrently
from exec_nodes.lance.scan import row_bytes, varies
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot
from memwal_sql.spark.options import Options
from memwal_sql.spark.reader import Share
from memwal_sql.spark.tables import pinned_table_of
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table import Table


def read_size(
    options: Options,
    table: Table,
    pinned: PinnedSnapshot,
    columns: pa.Schema,
    shares: Sequence[Share],
    rows: int,
) -> int | None:
    """The bytes of so many rows of `columns`, or more; None where a file's size is not known.

    Values of fixed width are counted. Others are taken for as large as the files that they are in,
    with all their columns, as is the log, whose rows are not counted. A lookup by key is a few rows
    of any size.
    """
    guess = rows * max(1, row_bytes(columns))
    if any(share.whole for share in shares):
        return guess
    stored = _file_bytes(options, pinned)
    if stored is None:
        return None
    return (max(guess, stored) if varies(columns) else guess) + _log_bytes(table, pinned)


def _file_bytes(options: Options, pinned: PinnedSnapshot) -> int | None:
    """Of the base table and of the generations above it."""
    base = pinned_table_of(options).base(pinned.version)
    sizes = _base_sizes(base)
    for region in pinned.regions:
        merged = base.details.merged_generations.get(region.manifest.region_id, 0)
        flushed = region.manifest.flushed_generations
        sizes += [each.bytes for each in flushed if each.generation > merged]
    return sum(size or 0 for size in sizes) if all(sizes) else None


def _base_sizes(base: BaseTable) -> list[int | None]:
    fragments = base.dataset.get_fragments()
    return [file.file_size_bytes for each in fragments for file in each.metadata.files]


def _log_bytes(table: Table, pinned: PinnedSnapshot) -> int:
    """Of the entries that are not flushed: a listing for each region that has some."""

    def of_region(region: PinnedRegion) -> int:
        sizes = table.context.wal(region.manifest.region_id).sizes()
        entries = region.entries
        return sum(size for position, size in sizes.items() if position in entries)

    return sum(map_concurrently(of_region, [each for each in pinned.regions if each.entries]))
