"""Streaming read: the change feed, with a place in every region as the offset.

An offset is `{region id: "position/generation"}`; a region that is not in it is read from its
beginning. A batch is read by one task a region, and its places never change, so a batch that is
run again has the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from memwal_sql.errors import InvalidCallError
from memwal_sql.read.changes.old_rows import BEFORE
from memwal_sql.read.changes.region_feed import FEED_FIELDS, feed_schema
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import as_spark, read_schema

Offset = dict[str, str]
Places = dict[str, list[int]]
_FEED = tuple(field.name for field in FEED_FIELDS)
EARLIEST = "earliest"
LATEST = "latest"


def stream_schema(options: Options) -> pa.Schema:
    """The columns of the feed: the table's or those of option `columns`, the feed's own, and with
    option `oldRows` a struct of the former."""
    info = table_of(options).info
    return feed_schema(info, _columns(options), old_rows=options.flag("oldRows", False))


def _columns(options: Options) -> Sequence[str]:
    return options.names("columns") or table_of(options).info.schema.names


@dataclass(frozen=True)
class RegionRange(InputPartition):
    """The changes of one region after one place, up to another."""

    region: str
    after: tuple[int, int]
    until: tuple[int, int]


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the changes of a table."""

    def __init__(self, options: Options, schema: StructType) -> None:
        unknown = [name for name in schema.names if name not in stream_schema(options).names]
        if unknown:
            raise InvalidCallError(f"the change feed of {options.uri} has no columns {unknown}")
        self._options = options
        self._schema = schema
        self._target: Places | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Option `startingFrom`: the beginning of every region, its current end, or its end at a
        checkpoint. Raises InvalidCallError for another name."""
        start = self._options.values.get("startingFrom", EARLIEST)
        if start.lower() == EARLIEST:
            return {}
        table = table_of(self._options)
        past = table if start.lower() == LATEST else table.as_of(checkpoint=start)
        return _offset(past.change_offsets())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Option `maxRowsPerBatch`."""
        rows = self._options.number("maxRowsPerBatch")
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to the current end, and no further."""
        self._target = table_of(self._options).change_offsets()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """The end of the next batch: the current end, or as far as the limit's rows reach.

        A batch has at least one WAL entry, or one stored batch of a published generation, so that
        a small limit slows a stream down and never stops it.
        """
        ends = self._target or table_of(self._options).change_offsets()
        if isinstance(limit, ReadMaxRows):
            ends = self._within(_places(start), ends, limit.max_rows)
        return {**start, **_offset(ends)}

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        """The newest offset, for the progress that Spark shows."""
        return _offset(table_of(self._options).change_offsets())

    def partitions(self, start: Offset, end: Offset) -> Sequence[RegionRange]:
        """One range for every region that has something new."""
        before, after = _places(start), _places(end)
        ranges = []
        for region, (position, generation) in after.items():
            old, older = before.get(region, [0, 0])
            if [position, generation] != [old, older]:
                ranges.append(RegionRange(region, (old, older), (position, generation)))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range, in Spark's types."""
        if not isinstance(partition, RegionRange):
            return
        target = read_schema(self._schema)
        names: Sequence[str] = [name for name in self._schema.names if name not in _FEED]
        old_rows = BEFORE in names
        if old_rows:
            names = _columns(self._options)
        for batch in _changes(self._options, partition, names, old_rows=old_rows):
            yield as_spark(batch.select(target.names), target)

    def _within(self, start: Places, ends: Places, rows: int) -> Places:
        """Places at most about `rows` rows after `start`, about equally many in every region."""
        table = table_of(self._options)
        behind = {region: end for region, end in ends.items() if end != start.get(region, [0, 0])}
        limited = dict(ends)
        share = max(1, rows // max(1, len(behind)))
        for region, end in behind.items():
            after = start.get(region, [0, 0])
            span = RegionRange(region, (after[0], after[1]), (end[0], end[1]))
            seen = 0
            for batch in _changes(self._options, span, list(table.primary_key)):
                last = batch.slice(batch.num_rows - 1).to_pylist()[0]
                # Parts of a published generation have the place before it: it is read whole.
                if limited[region] not in (end, after) and seen + batch.num_rows > share:
                    break
                seen += batch.num_rows
                limited[region] = [last["_position"], last["_generation"]]
            else:
                limited[region] = end
        return limited


def _changes(
    options: Options, span: RegionRange, columns: Sequence[str], *, old_rows: bool = False
) -> pa.RecordBatchReader:
    return table_of(options).changes(
        region=span.region,
        after=list(span.after),
        until=list(span.until),
        columns=columns,
        old_rows=old_rows,
    )


def _offset(places: Places) -> Offset:
    return {region: f"{position}/{generation}" for region, (position, generation) in places.items()}


def _places(offset: Offset) -> Places:
    return {
        region: [int(number) for number in place.split("/")] for region, place in offset.items()
    }
