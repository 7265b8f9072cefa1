"""CheckedLiveExec: rows in memory, compared with those of the general path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from exec_nodes.base.errors import RepairError
from exec_nodes.node import Node, Statistics

_REMEDY = "report it, and go on with mw.configure(live_rows=False)"


@dataclass(frozen=True)
class CheckedLiveExec(Node):
    """Yields the rows of `live`, after it has read all rows of `general`, which are to be the same
    of the same snapshot; with a `limit`, some of them, and as many as there are up to it.

    Raises RepairError if they are others.
    """

    live: Node
    general: Node
    limit: int | None

    @property
    def schema(self) -> pa.Schema:
        return self.live.schema

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.live, self.general)

    @property
    def statistics(self) -> Statistics:
        """Not exact, or the host would answer count(*) by it, without a comparison."""
        return replace(self.live.statistics, exact=False)

    def label(self) -> str:
        return f"CheckedLiveExec: limit={self.limit}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        rows = _rows(self.live).slice(0, self.limit)
        self._check(rows, _rows(self.general))
        yield from rows.to_batches()

    def _check(self, rows: pa.Table, expected: pa.Table) -> None:
        with suppress(pa.ArrowException):  # columns that Arrow can't sort
            order = [(name, "ascending") for name in rows.schema.names]
            if order and rows.sort_by(order).equals(expected.sort_by(order)):
                return
        ours, theirs = (Counter(map(repr, table.to_pylist())) for table in (rows, expected))
        surplus = ours - theirs
        lacking = theirs - ours if self.limit is None else Counter[str]()
        least = len(expected) if self.limit is None else min(self.limit, len(expected))
        if surplus or lacking or len(rows) < least:
            example = next(iter(surplus or lacking), "none of another kind")
            raise RepairError(
                f"there are {len(rows)} live rows where the files give {least}; one only has "
                f"{example}: {_REMEDY}"
            )


def _rows(node: Node) -> pa.Table:
    parts = (batch for part in range(node.partitions) for batch in node.execute(part))
    return pa.Table.from_batches(parts, node.schema)
