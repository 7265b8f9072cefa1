"""An advance: what a closed look has that an image lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

import pyarrow as pa

from exec_nodes.base.columns import TOMBSTONE
from exec_nodes.sources.memtable_source import MemTableSource
from memwal_sql.errors import NotFoundError
from memwal_sql.read.closed import ClosedRead, OlderReadError, TableRead
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.taken import (
    ClosedRegion,
    ImageLostError,
    News,
    Taken,
    is_behind,
    keys_of,
    news_of,
    taken_region,
)
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.lost_rows import LOST

Change: TypeAlias = tuple[pa.RecordBatch, pa.Array, pa.BooleanArray | None]


def closed_regions(closed: ClosedRead) -> list[ClosedRegion]:
    """The regions that a closed look has read."""
    regions = []
    for region in closed.read.regions:
        reader, unflushed = region.reader, region.unflushed
        is_quiet = unflushed.tail.is_quiet and reader.is_quiet
        regions.append(ClosedRegion(reader, unflushed.manifest, unflushed.tail, is_quiet))
    return regions


def advance_of(
    tracker: BaseTracker, taken: Taken, read: TableRead, closed: Sequence[ClosedRegion], rows: int
) -> tuple[list[Change], Taken]:
    """What an image of so many rows lacks of a closed look, in the order to apply it, and what it
    has taken in then.

    Raises OlderReadError for a look that is behind it, ImageLostError where the image can't be
    brought up to date.
    """
    if taken.lost != LOST.count:
        raise ImageLostError("rows of a buffered writer were lost")
    base, listed = read.base, {reader.region_id for reader in read.listed}
    if read.open_of is not None and not taken.regions.keys() <= listed:
        raise OlderReadError
    for region in closed:
        before = taken.regions.get(region.reader.region_id)
        if before is not None and is_behind(region, before):
            raise OlderReadError
    taken = _followed(tracker, taken, base)
    if base.stored is not taken.base.stored and not base.stored.equals(taken.base.stored):
        raise ImageLostError("the table has other columns")
    news, regions = list[News](), dict(taken.regions)
    for region in closed:
        before = taken.regions.get(region.reader.region_id)
        news += news_of(region, before, base, base.details.merged_generations)
        regions[region.reader.region_id] = taken_region(region, before)
    missing = sum(part.source.rows - part.first for part in news)
    if missing > max(Live.few, Live.missing * rows):
        raise ImageLostError(f"{missing} rows were new to it at once, or replayed by a writer")
    key, schema = base.info.primary_key, taken.base.info.schema
    changes = [change for part in news for change in _rows(part, schema, key)]
    return changes, replace(taken, regions=regions)


def _followed(tracker: BaseTracker, taken: Taken, base: BaseTable) -> Taken:
    """What was taken in, of the base version of a look, if it has the same rows apart from
    merged generations. The look has found no newer version with other rows."""
    etag = taken.details.etag
    if base.etag == etag or base.etag in taken.earlier:
        return taken
    if base.version < taken.version:
        raise OlderReadError
    if base.version - taken.version > Live.versions:
        raise ImageLostError("nobody has queried it for many base versions")
    with suppress(NotFoundError):
        if tracker.preserves_rows(taken.version, etag, base):
            earlier = (*taken.earlier, etag)[-Live.earlier :]
            return replace(taken, version=base.version, details=base.found, earlier=earlier)
    raise ImageLostError("the base table has other rows")


def _rows(news: News, schema: pa.Schema, key: Sequence[str]) -> Iterator[Change]:
    """Rows from the `first` on, with their keys, and which are deleted."""
    source = news.source
    if isinstance(source, MemTableSource):  # of many writes, to be taken in together
        written = pa.Table.from_batches(source.since(news.first))
        batches = iter(written.combine_chunks().to_batches())
    else:
        names, parts = [*schema.names, TOMBSTONE], range(source.parts)
        batches = chain.from_iterable(source.scan(names, (), None, part) for part in parts)
    for batch in batches:
        columns = [batch.column(name) for name in schema.names]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        yield rows, keys_of(rows, key), batch.column(TOMBSTONE)
