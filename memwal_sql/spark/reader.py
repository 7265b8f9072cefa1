"""Batch reading: partitions of one pinned snapshot, each a plan of its own.

The driver pins the snapshot and shares it out: groups of the base table's fragments, and groups of
regions. A task of the first kind reads its fragments and masks them by the keys of all regions,
because any region may hold newer rows; one of the second kind reads its regions alone, as a key
lives in one region only (protocol rule 10). So a row is returned by exactly one task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from memwal_sql.errors import InvalidCallError
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.read.planning import plan_over, stream
from memwal_sql.spark.filters import conditions
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import pinned_table_of, table_of
from memwal_sql.spark.types import arrow_schema, as_spark
from memwal_sql.sql.filtered_scan import filtered_scan
from planner.model import Query, Snapshot
from planner.plan import MAX_LOOKUP_KEYS
from planner.predicates.key_equalities import key_equalities


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads: fragments of the base table, or regions by their place in the snapshot;
    neither: everything, for a lookup by key."""

    pinned: PinnedSnapshot
    fragments: frozenset[int] | None = None
    regions: tuple[int, ...] | None = None


class BatchReader(DataSourceReader):
    """Reads the rows of a table, without taking filters over."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: list[str] = []
        version = options.number("version")
        table = table_of(options, version)
        unknown = [name for name in schema.names if name not in table.schema.names]
        if unknown:
            raise InvalidCallError(
                f"{options.uri} has no columns {unknown}; it has {table.schema.names}"
            )
        self._table_schema = table.schema

    def partitions(self) -> Sequence[Share]:
        """One snapshot, shared out."""
        table = table_of(self._options, self._options.number("version"))
        pinned = table.pin(self._options.consistency, self._conditions)
        keys = key_equalities(self._conditions, table.primary_key, table.schema)
        if keys is not None and len(keys) <= MAX_LOOKUP_KEYS:
            return [Share(pinned)]
        base = pinned_table_of(self._options).base(pinned.version)
        rows = {f.fragment_id: f.metadata.num_rows for f in base.dataset.get_fragments()}
        target = self._options.partition_rows
        shares = [Share(pinned, fragments=frozenset(g)) for g in _groups(rows, target)]
        by_region = {}
        for number, region in enumerate(pinned.regions):
            merged = base.details.merged_generations.get(region.manifest.region_id, 0)
            if count := region.rows(merged):
                by_region[number] = count
        shares += [Share(pinned, regions=tuple(g)) for g in _groups(by_region, target)]
        return shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share, in Spark's types."""
        if not isinstance(partition, Share):
            return  # a table without rows and regions
        target = arrow_schema(self._schema)
        rows = ShareTable(self._options, partition, self._table_schema)
        share = rows.snapshot()
        if share.base is None and not any(region.sources for region in share.regions):
            return  # what was in these regions' WALs were fences
        names = tuple(self._schema.names)
        if self._conditions:
            condition = " AND ".join(f"({one})" for one in self._conditions)
            reader = filtered_scan(rows, names, condition, None, self._options.consistency)
        else:
            reader = stream(plan_over(rows.snapshot, Query(names)))
        for batch in reader:
            yield as_spark(batch, target)


class FilteringReader(BatchReader):
    """Reads the rows that may meet Spark's filters; Spark applies them again."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Remember what rules rows out early; every filter stays Spark's."""
        self._conditions = conditions(filters, self._table_schema)
        return filters


class ShareTable:
    """One task's share of a pinned snapshot, as scans want a table."""

    def __init__(self, options: Options, share: Share, schema: pa.Schema) -> None:
        self._table = pinned_table_of(options)
        self._share = share
        self.schema = schema

    def snapshot(self, consistency: str = "strong", filters: Sequence[str] = ()) -> Snapshot:
        """The share. What filters rule out was left out when it was pinned."""
        del consistency, filters
        whole = self._table.snapshot(self._share.pinned)
        if self._share.fragments is not None:
            base = self._table.base(self._share.pinned.version).source
            masks = tuple(source for region in whole.regions for source in region.sources)
            share = base.share(self._share.fragments)
            return replace(whole, base=share, regions=(), masks=masks)
        if self._share.regions is not None:
            regions = tuple(whole.regions[number] for number in self._share.regions)
            return replace(whole, base=None, regions=regions)
        return whole

    def writer_for_insert(self) -> Any:
        """A share takes no rows."""
        raise InvalidCallError("a share of a snapshot takes no rows")


def _groups(rows: dict[int, int], target: int) -> list[list[int]]:
    """The items in runs of about `target` rows, equally large where they divide so."""
    if not rows:
        return []
    count = max(1, -(-sum(rows.values()) // target))
    total, seen = max(1, sum(rows.values())), 0
    groups: list[list[int]] = [[] for _ in range(count)]
    for item, size in rows.items():
        groups[min(count - 1, seen * count // total)].append(item)
        seen += size
    return [group for group in groups if group]
