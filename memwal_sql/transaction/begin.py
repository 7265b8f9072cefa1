"""The state of the tables of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from memwal_sql.errors import ConflictError
from memwal_sql.read.one_state import TableState, moved_since, one_state
from memwal_sql.state.open_writers import live_table_writer
from memwal_sql.table import Table
from memwal_sql.transaction.table_inside import TableInside
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.region_writer import RegionWriter, landed_cuts
from memwal_sql.write.table_writer import TableWriter


@dataclass(eq=False)
class Joined:
    """A table of a transaction.

    Attributes:
        inside: the table as the transaction sees it.
        cuts: cuts of the regions that this process had claimed by then.
        ends: the last WAL position that the snapshot has, by region.
        epochs: the writer epoch of each region then.
        whole: whether nothing may have been written to the table since, see `Transaction.expect`.
    """

    table: Table
    inside: TableInside
    cuts: dict[RegionWriter, Cut]
    ends: Mapping[UUID, int]
    epochs: Mapping[UUID, int]
    whole: bool = False


def join(tables: Sequence[Table], earlier: Sequence[Joined] = ()) -> list[Joined]:
    """The tables in one state, which has every transaction in all of them or in none, and in those
    that have joined earlier. Raises ConflictError where others have written those since."""
    # All are opened before one is waited for.
    cuts = [landed_cuts(begun) for begun in [_begin_cuts(table) for table in tables]]
    states = one_state([table.collector for table in tables])
    for joined in earlier:
        _check_unmoved(joined)
    return [
        _joined(table, state, opened)
        for table, state, opened in zip(tables, states, cuts, strict=True)
    ]


def _joined(table: Table, state: TableState, cuts: dict[RegionWriter, Cut]) -> Joined:
    inside = TableInside(table, state.base, state.snapshot)
    return Joined(table, inside, cuts, state.ends, state.epochs)


def _check_unmoved(joined: Joined) -> None:
    """Raise ConflictError if a table has been written, or claimed by others, since it joined."""
    moved = moved_since(joined.table.collector, joined.ends, joined.epochs)
    if moved is not None:
        uri = joined.table.uri
        raise ConflictError(
            f"others have written {uri} since this transaction began, and it uses another table "
            "only now, which it would see in a later state: ROLLBACK, and begin again",
            table=uri,
            region=moved,
            expected=joined.ends.get(moved, 0),
        )


def _begin_cuts(table: Table) -> dict[RegionWriter, Cut]:
    writer = live_table_writer(table.context.identity)
    return writer.begin_cuts() if isinstance(writer, TableWriter) else {}
