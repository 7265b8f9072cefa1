"""What a table should hold: a dict from key number to row, and what crashes may leave of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tests.model.kinds import KeyKind


class Row(NamedTuple):
    """The columns beside the key. `op` is the number of the write that made the row."""

    val: int | None
    txt: str | None
    w: float
    tags: tuple[int, ...] | None
    op: int


VALUE_FIELDS = (
    pa.field("val", pa.int64()),
    pa.field("txt", pa.string()),
    pa.field("w", pa.float64(), nullable=False),
    pa.field("tags", pa.list_(pa.int32())),
    pa.field("op", pa.int64()),
)
VALUE_NAMES = [f.name for f in VALUE_FIELDS]

Rows = dict[int, Row]


def schema_of(kind: KeyKind) -> pa.Schema:
    """The table's schema: a value column first, so that key columns are not always in front."""
    return pa.schema([VALUE_FIELDS[0], *kind.schema_fields(), *VALUE_FIELDS[1:]])


def table_of(kind: KeyKind, rows: Iterable[tuple[int, Row]]) -> pa.Table:
    """Arrow rows of (key number, row) pairs, in their order."""
    pairs = list(rows)
    columns = dict(zip(kind.names, kind.arrays(n for n, _ in pairs), strict=True))
    for index, fld in enumerate(VALUE_FIELDS):
        columns[fld.name] = pa.array([row[index] for _, row in pairs], fld.type)
    schema = schema_of(kind)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def rows_of(kind: KeyKind, table: pa.Table) -> list[tuple[int, Row]]:
    """The (key number, row) pairs of a result that has every column."""
    columns = [table.column(name).to_pylist() for name in VALUE_NAMES]
    tags = VALUE_NAMES.index("tags")
    columns[tags] = [None if v is None else tuple(v) for v in columns[tags]]
    values = map(Row._make, zip(*columns, strict=True))
    return list(zip(kind.numbers(table), values, strict=True))


@dataclass
class Oracle:
    """The model of one table.

    Attributes:
        rows: what a strong read returns.
        touched: keys that were ever written through a writer.
        base: keys whose rows are physically in the base table by an append or a merge.
        flushed: for every key, the values it may have for a reader of flushed rows only: one
            for each write since the last flush, the oldest first. None is "no row".
        durable: the same for a crash: one for each write since the last durable one.
        recorded: as `flushed`, for a reader of the region states recorded in the MemWAL index; None
            while there is no record, as such a reader then takes the manifests.
    """

    rows: Rows = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    base: set[int] = field(default_factory=set)
    flushed: dict[int, list[Row | None]] = field(default_factory=dict)
    durable: dict[int, list[Row | None]] = field(default_factory=dict)
    recorded: dict[int, list[Row | None]] | None = None

    def _set(self, n: int, row: Row | None, *, durable: bool) -> None:
        old = self.rows.get(n)
        self.touched.add(n)
        self.flushed.setdefault(n, [old]).append(row)
        if self.recorded is not None:
            self.recorded.setdefault(n, [old]).append(row)
        if durable:
            self.durable.pop(n, None)
        else:
            self.durable.setdefault(n, [old]).append(row)
        if row is None:
            self.rows.pop(n, None)
        else:
            self.rows[n] = row

    def upsert(self, pairs: Iterable[tuple[int, Row]], *, durable: bool) -> None:
        """Rows in batch order: the last of a key wins."""
        for n, row in dict(pairs).items():
            self._set(n, row, durable=durable)

    def delete(self, numbers: Iterable[int], *, durable: bool) -> None:
        for n in set(numbers):
            self._set(n, None, durable=durable)

    def append(self, pairs: Iterable[tuple[int, Row]]) -> None:
        """Rows that somebody appended to the base table behind our back; of unused keys only."""
        for n, row in pairs:
            assert n not in self.base and n not in self.rows
            self.rows[n] = row
            self.base.add(n)
            self.flushed[n] = [row]
            if self.recorded is not None:
                self.recorded[n] = [row]

    def record(self) -> None:
        """The region states of now were recorded."""
        self.recorded = {n: list(values) for n, values in self.flushed.items()}

    def crashed(self, found: Mapping[int, Row]) -> None:
        """Check what was left after a crash and go on from there.

        Raises AssertionError when a durable row is gone or a row is there that was never written.
        """
        for n in {*found, *self.rows, *self.durable}:
            allowed = self.durable.get(n, [self.rows.get(n)])
            assert found.get(n) in allowed, (
                f"after a crash key {n} is {found.get(n)}, allowed were {allowed}"
            )
        self.rows = dict(found)
        self.durable.clear()

    def check_flushed(self, found: Mapping[int, Row], *, eventual: bool = False) -> None:
        """Check a read of flushed rows: for every key a state at or after the last flush, or the
        last one that was recorded."""
        states = self.flushed if self.recorded is None or not eventual else self.recorded
        for n in {*found, *self.rows, *states}:
            allowed = states.get(n, [self.rows.get(n)])
            assert found.get(n) in allowed, (
                f"flushed rows show key {n} as {found.get(n)}, allowed were {allowed}"
            )
