"""The snapshot that a transaction begins with: one state of several tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from uuid import UUID

from memwal_sql.errors import ContentionError
from memwal_sql.read.closed import RegionRead, read_closed
from memwal_sql.read.region import StaleBaseError
from memwal_sql.read.snapshots import ATTEMPTS, SnapshotCollector, TableRead
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.open_writers import live_table_writer
from memwal_sql.table import Table
from memwal_sql.transaction.table_inside import TableInside
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.table_writer import TableWriter


@dataclass(eq=False)
class Joined:
    """A table of a transaction.

    Attributes:
        inside: the table as the transaction sees it.
        cuts: cuts of the regions that this process had claimed by then.
        ends: the last WAL position that the snapshot has, by region.
        whole: whether nothing may have been written to the table since, see `Transaction.expect`.
    """

    table: Table
    inside: TableInside
    cuts: Mapping[RegionWriter, Cut] = field(default_factory=dict)
    ends: Mapping[UUID, int] = field(default_factory=dict)
    whole: bool = False


def join(tables: Sequence[Table]) -> list[Joined]:
    """The tables in one snapshot, which has every transaction in all of them or in none."""
    cuts = [_open_cuts(table) for table in tables]
    collectors = [table.collector for table in tables]
    whole = {table.context.incarnation for table in tables}
    for _ in range(ATTEMPTS):
        bases = [collector.base_for("strong") for collector in collectors]

        read = partial(_read, collectors, bases)
        reads, tails = read_closed(read, _regions, whole)
        try:
            joined = []
            for table, table_read, opened in zip(tables, reads, cuts, strict=True):
                snapshot = table.collector.snapshot_of(table_read, tails)
                snapshot = replace(snapshot, indexes=table_read.base.indexes.infos)
                ends = {
                    region.reader.region_id: (
                        tails[region.reader.place] if tails else region.unflushed.tail
                    ).end
                    for region in table_read.regions
                }
                inside = TableInside(table, table_read.base, snapshot)
                joined.append(Joined(table, inside, opened, ends))
        except StaleBaseError:
            for collector in collectors:
                collector.catch_up()
        else:
            return joined
    raise ContentionError("the tables were merged again and again meanwhile: begin again")


def _read(collectors: Sequence[SnapshotCollector], bases: Sequence[BaseTable]) -> list[TableRead]:
    pairs = zip(collectors, bases, strict=True)
    return [collector.read(base, (), strong=True) for collector, base in pairs]


def _regions(reads: Sequence[TableRead]) -> Iterable[RegionRead]:
    return chain.from_iterable(read.regions for read in reads)


def _open_cuts(table: Table) -> dict[RegionWriter, Cut]:
    writer = live_table_writer(table.context.identity)
    return writer.open_cuts() if isinstance(writer, TableWriter) else {}
