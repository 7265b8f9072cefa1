"""A statement that changes rows: reads rows, and writes the changes unless others wrote their
keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from memwal_sql.statements.changes.reading import Reading, are_among, with_keys
from memwal_sql.statements.changes.returning import Returning
from memwal_sql.statements.changes.row_actions import RowAction, keys_of, row_changes
from memwal_sql.statements.changes.target import Target
from memwal_sql.write.conditional.resolve import RowChanges
from memwal_sql.write.coordinator import Description
from memwal_sql.write.result import WriteResult

MakeReading = Callable[[], Reading]


class Change(ABC):
    """A statement that changes rows.

    Attributes:
        target: the table that it changes.
        returning: its RETURNING clause; None for counts.
        reruns_all: whether it is run again for all rows if another writer changed one of its keys
            meanwhile, as other rows may then change differently.
    """

    reruns_all = False

    def __init__(self, target: Target, returning: Returning | None) -> None:
        self.target = target
        self.returning = returning

    @property
    @abstractmethod
    def query(self) -> str:
        """The query that finds its rows, which EXPLAIN shows."""

    @abstractmethod
    def actions(self, reading: Reading, keys: pa.Table | None) -> list[RowAction]:
        """The changes to all rows or, at least, to the rows with some keys."""

    def counts(self, kinds: Counter[str]) -> dict[str, int]:
        """The result without RETURNING, from the number of changes of each kind."""
        return {"count": kinds.total()}

    def run(self, make: MakeReading, isolation: str, description: Description) -> pa.Table:
        """Run it durably, or stage it in the session's transaction, and return the rows of
        RETURNING, or counts. `make` makes the queries of each attempt, in a state of their own."""
        done: list[_Done] = []

        def read(keys: pa.Table | None) -> RowChanges:
            reading = make()
            actions = self.actions(reading, keys)
            if keys is None:
                done.clear()
            else:  # no action has keys `before`: a statement that sets keys `reruns_all`
                actions = [replace(action, rows=with_keys(action.rows, keys)) for action in actions]
                done[:] = [part.without(keys) for part in done]
            changes = row_changes(self.target, actions)
            done.append(_Done.of(reading, actions, self))
            return changes

        result = self.target.table.change(
            read,
            self.target.columns,
            whole=self.reruns_all,
            isolation=isolation,
            description=description,
        )
        if self.returning is not None:
            return pa.concat_tables([part.returned for part in done])
        counts = self.counts(Counter(kind for part in done for kind in part.kinds.to_pylist()))
        return counted(
            pa.table({name: pa.array([n], pa.uint64()) for name, n in counts.items()}), result
        )


def counted(counts: pa.Table, result: WriteResult) -> pa.Table:
    """The counts of a statement; a column more says that it was not one transaction."""
    return counts if result.atomic else counts.append_column("atomic", pa.array([False]))


@dataclass(frozen=True, slots=True)
class _Done:
    """Changes made: the keys of the rows, the kind of each change, and the rows of RETURNING."""

    keys: pa.Table
    kinds: pa.ChunkedArray
    returned: pa.Table

    @classmethod
    def of(cls, reading: Reading, actions: Sequence[RowAction], change: Change) -> _Done:
        each = [pa.repeat(action.kind, action.rows.num_rows) for action in actions]
        kinds = pa.chunked_array(each, pa.string())
        keys = keys_of(change.target, [action.rows for action in actions])
        rows = None if change.returning is None else change.returning.rows(reading, actions)
        return cls(keys, kinds, pa.table({}) if rows is None else rows)

    def without(self, keys: pa.Table) -> _Done:
        """All changes but those of rows with these keys."""
        stay = pc.invert(are_among(self.keys, keys))
        has_rows = self.returned.num_columns > 0
        returned = self.returned.filter(stay) if has_rows else self.returned
        return _Done(self.keys.filter(stay), self.kinds.filter(stay), returned)
