"""The planner's input: one immutable snapshot of a table, and one query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.errors import MemWalError, SourceGoneError
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.sources.source import Source
from memwal_native import LiveImage, LiveScan, Predicate
from planner.predicates.condition import Condition

if TYPE_CHECKING:
    from exec_nodes.node import Node
    from planner.regions.spec import RegionSpec


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The parts of a table that snapshots of one schema version share.

    Attributes:
        schema: the table's logical schema, without metadata.
        primary_key: names of the key columns, in key order.
        region_specs: every region spec of the table (Specification 2, "Region Spec").
        field_ids: the ids of the columns by name, where they are known: a column that was dropped
            or renamed is another one than a later one of its name.
    """

    schema: pa.Schema
    primary_key: tuple[str, ...]
    region_specs: tuple[RegionSpec, ...] = ()
    field_ids: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def key_schema(self) -> pa.Schema:
        """The fields of the primary key, in key order."""
        return pa.schema([self.schema.field(name) for name in self.primary_key])

    def spec(self, spec_id: int) -> RegionSpec | None:
        """The region spec with this id, if the table has it."""
        return next((spec for spec in self.region_specs if spec.spec_id == spec_id), None)


@dataclass(frozen=True, slots=True)
class RegionSources:
    """One region of a snapshot.

    Attributes:
        name: how plans print it.
        values: region values by field id; None for a manual region or one with unknown values: such
            a region is never pruned.
        sources: its flushed generations above the merge progress and its MemTables, newest first.
    """

    region_id: UUID
    name: str
    spec_id: int
    values: Mapping[str, object] | None
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class IndexGap:
    """Merged generations that an index of the base table does not cover yet (Specification 2,
    appendix 4), if only merges have written the rows that it lacks.

    Attributes:
        covered: the base table without the fragments that the index lacks.
        merged: the generations that these fragments came from, by region, newest first.
    """

    covered: Source
    merged: Mapping[UUID, tuple[Source, ...]]


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The rows of a snapshot in memory, one a key, as long as the image has its `state`; None if
    there is no image.

    `note` is called with the columns of each query, whether it may read all rows, and whether it
    had them from the image: what queries miss is made for later ones. `is_checked` says whether
    queries compare them with the rows of the sources.
    """

    image: LiveImage | None
    state: object
    note: Callable[[Sequence[int], bool, bool], object]
    is_checked: bool = False

    def scan(
        self,
        schema: pa.Schema,
        query: Query,
        keys: pa.Array | None,
        conditions: Sequence[Predicate],
        regions: int,
    ) -> LiveScan | None:
        """The rows, or those with some keys, that meet the conditions of a query; None if the image
        lacks a column, or has gone on."""
        inputs = [name for condition in conditions for name in condition.columns]
        numbers = [
            schema.get_field_index(name) for name in dict.fromkeys([*query.columns, *inputs])
        ]
        columns, rows = numbers[: len(query.columns)], None
        if self.image is not None:
            rows = self.image.scan(self.state, columns, keys, conditions, query.limit, regions)
        self.note(numbers, keys is None, rows is not None)
        return rows


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One consistent state of a table (protocol rule 14). Every query runs on exactly one.

    Attributes:
        base: the base table at one version; None if the plan does not read it.
        regions: in a stable order, by spec id and then by values.
        regions_pruned: the number of further regions, which the query's filters rule out.
        indexes: the base table's vector and full-text indexes at that version.
        masks: sources whose rows another plan reads: here they only make rows of the base table
            stale. A distributed scan shares out the base table that way; no other query has them.
        gaps: by index name, the rows that the index lacks; scans and lookups ignore them.
        live: the same rows in memory, if they are there.
        missing: makes the error for files that are gone, after reading the table again; None if
            nothing can.
    """

    info: TableInfo
    base: Source | None
    regions: tuple[RegionSources, ...]
    regions_pruned: int = 0
    indexes: tuple[IndexInfo, ...] = ()
    masks: tuple[Source, ...] = ()
    gaps: Mapping[str, IndexGap] = field(default_factory=dict, compare=False, repr=False)
    live: LiveTable | None = field(default=None, compare=False, repr=False)
    missing: Callable[[SourceGoneError], MemWalError] | None = field(
        default=None, compare=False, repr=False
    )

    @property
    def sources(self) -> tuple[Source, ...]:
        """All of them: the base table, then each region's."""
        base = () if self.base is None else (self.base,)
        return (*base, *(source for region in self.regions for source in region.sources))


@dataclass(frozen=True, slots=True)
class Query:
    """A scan: the columns to return (may be none: count), conjunctive filters, a row limit."""

    columns: tuple[str, ...]
    filters: tuple[Condition, ...] = ()
    limit: int | None = None


Planner: TypeAlias = "Callable[[Snapshot], Node]"
"""Makes the plan of a query over a snapshot; its sources need not be open yet."""
