"""Sessions in which the records of a file are run: one of plain tables, one of tables of ours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.registered import Registered
from memwal_sql.session.session import session_of
from planner.model import Snapshot
from tests.sqllogictest.data import make_missing
from tests.sqllogictest.records import Record

_BLANKS = r"(?:\s|--[^\n]*\n)*"
_NAME = r'((?:"[^"]+"|[\w$]+)(?:\.(?:"[^"]+"|[\w$]+))*)'
_CREATE = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:TEMP(?:ORARY)?\s+)?(?:UNBOUNDED\s+)?(?:EXTERNAL\s+)?TABLE\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    rf"{_BLANKS}(?:INSERT\s+INTO(?:\s+TABLE)?|DELETE\s+FROM|UPDATE|MERGE\s+INTO"
    rf"|TRUNCATE(?:\s+TABLE)?)\s+{_NAME}",
    re.IGNORECASE,
)
# What mw.sql leaves to ctx.sql: a table in memory with a key, and statements in another dialect.
_IN_MEMORY = re.compile(
    r"\s*CREATE\s+(?!EXTERNAL\b).*\bTABLE\b.*\bPRIMARY\s+KEY\b", re.IGNORECASE | re.DOTALL
)
# What mw.sql refuses, as DataFusion's own answer would be another dialect's, or wrong.
_OWN = (
    "statements are read in DataFusion's default dialect",
    "DataFusion ",
    "piecewise merge joins",
)
_INSERT = re.compile(rf"{_BLANKS}INSERT\b", re.IGNORECASE)
_KEY = "_key"
_PARTS = 100  # of a plain table: a part a row, where it has fewer
_ODD = re.compile("day_time_interval|month_interval")


class Refusal:
    """What a session says instead of an answer."""

    def __init__(self, error: BaseException) -> None:
        self.message = str(error) or repr(error)

    def __repr__(self) -> str:
        return f"refused: {self.message[:300]}"


class Session:
    """Runs records over tables of DataFusion itself, whose rows are in some order.

    Every table that a statement makes is put anew with rows as a table of ours can have them.
    """

    def __init__(self, text: str, seed: int | None = None) -> None:
        config = datafusion.SessionConfig().with_target_partitions(4)
        self.ctx = datafusion.SessionContext(config)
        self._text = text
        self._keys = Random(text)
        self._shuffled = None if seed is None else np.random.default_rng(seed)

    def run(self, record: Record) -> pa.Table | Refusal:
        """The answer to a record."""
        make_missing(record.sql)
        try:
            found = self._run(record.sql)
            if (made := _CREATE.match(record.sql)) is not None:
                self._made(made.group(1))
            elif (changed := _CHANGE.match(record.sql)) is not None:
                self._changed(changed.group(1))
        except BaseException as error:  # a panic of Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            return Refusal(error)
        return found

    def close(self) -> None:
        """Let go of the tables."""

    def _run(self, sql: str) -> pa.Table:
        return _rows(self.ctx.sql(sql))

    def _made(self, name: str) -> None:
        """A statement has made a table."""
        rows = self._stored(name)
        if rows is not None:
            self._put(name, *self._with_key(name, rows))

    def _changed(self, name: str) -> None:
        """A statement has changed rows of a table."""
        if self._shuffled is not None and (rows := self._stored(name)) is not None:
            self._put(name, rows)

    def _stored(self, name: str) -> pa.Table | None:
        """The rows of a table, in types that a table of ours has."""
        try:
            rows = _rows(self.ctx.sql(f"SELECT * FROM {name}"))
            return rows.cast(pa.schema([f.with_type(_plain(f.type)) for f in rows.schema]))
        except Exception:
            return None  # no rows can be had of it: an endless one, say

    def _with_key(self, name: str, rows: pa.Table) -> tuple[pa.Table, str | None]:
        """The rows, and a column that can be their key, at times, where none are inserted; it has
        no nulls then."""
        last = re.escape(name.rsplit(".", maxsplit=1)[-1])
        writes = rf'(INTO|UPDATE)\s+(?:[\w"]+\.)*{last}\b'
        given = self._keys.random(), self._keys.random()
        if not len(rows) or re.search(writes, self._text, re.IGNORECASE) or given[0] < 0.4:
            return rows, None
        names = [
            one.name
            for one in rows.schema
            if (pa.types.is_integer(one.type) or pa.types.is_string(one.type))
            and not rows[one.name].null_count
            and len(rows[one.name].unique()) == len(rows)
        ]
        if not names:
            return rows, None
        key = names[int(given[1] * len(names))]
        fields = [one.with_nullable(one.nullable and one.name != key) for one in rows.schema]
        return rows.cast(pa.schema(fields)), key

    def _put(self, name: str, rows: pa.Table, _: str | None = None) -> None:
        """Have a table with these rows under the name."""
        parts = [rows]
        if self._shuffled is not None:
            order = self._shuffled.permutation(len(rows))
            most = min(max(len(rows), 1), _PARTS)
            places = np.array_split(order, self._shuffled.choice([1, 2, 3, 8, most]))
            parts = [rows.take(pa.array(one)) for one in places]
        self.ctx.deregister_table(name)
        batches = [one.combine_chunks().to_batches() or [_empty(rows.schema)] for one in parts]
        self.ctx.register_record_batches(name, batches)


class ShadowSession(Session):
    """Runs records over tables of ours, whose rows are spread over base, generations and memory.

    Attributes:
        shadowed: how many tables were made; `left` has those that could not be, and why.
    """

    def __init__(self, text: str, folder: Path, seed: str) -> None:
        super().__init__(text)
        self.shadowed = 0
        self.left: dict[str, str] = {}
        self._folder, self._rng = folder, Random(seed)
        self._tables: dict[str, mw.Table] = {}
        self._hidden: dict[str, WithoutKey] = {}
        self._numbers = count()

    def close(self) -> None:
        for table in self._tables.values():
            table.close()

    def _run(self, sql: str) -> pa.Table:
        changed = _CHANGE.match(sql)
        name = "" if changed is None else changed.group(1)
        if _IN_MEMORY.match(sql):
            return super()._run(sql)
        hidden = self._hidden.get(name.lower())
        if hidden is not None and _INSERT.match(sql):  # which the front reads by key
            return super()._run(sql)
        if changed is not None and name.lower() not in self._tables:  # one of DataFusion's own
            return super()._run(sql)
        if hidden is None:
            return self._read(sql)
        self._show(name, hidden, key=True)
        try:
            return self._read(sql)
        finally:
            self._show(name, hidden, key=False)

    def _read(self, sql: str) -> pa.Table:
        try:
            return _rows(mw.sql(self.ctx, sql))
        except mw.UnsupportedError as error:
            if not str(error).startswith(_OWN):
                raise
            return super()._run(sql)

    def _show(self, name: str, table: WithoutKey, *, key: bool) -> None:
        """Let statements find a table with its key, by which rows are changed, or without."""
        table.shows_key = key
        session_of(self.ctx).add(Registered(name, table, table.schema, "strong", table.mounted))

    def _put(self, name: str, rows: pa.Table, key: str | None = None) -> None:
        if (old := self._tables.pop(name.lower(), None)) is not None:
            old.close()
        self._hidden.pop(name.lower(), None)
        try:
            table = self._spread(rows, key)
        except (mw.InvalidCallError, mw.UnsupportedError) as error:
            self.left[name] = str(error)
            super()._put(name, rows)
            return
        self.shadowed += 1
        self._tables[name.lower()] = table
        self.ctx.deregister_table(name)
        if key is not None:
            mw.register(self.ctx, name, table)
            return
        shown = self._hidden[name.lower()] = WithoutKey(table, len(rows))
        shown.mounted = MountedTable(TableProvider(name, shown, missing="null"))
        self.ctx.register_table(name, shown.mounted)
        self._show(name, shown, key=False)

    def _changed(self, name: str) -> None:
        table = self._tables.get(name.lower())
        if table is not None:
            self._move(table)

    def _spread(self, rows: pa.Table, natural: str | None) -> mw.Table:
        """A table of these rows, some of which replace others or stand beside deleted ones."""
        rng = self._rng
        key = natural or _KEY
        if natural is None:
            keys = pa.array(range(len(rows)), pa.int64())
            rows = rows.append_column(pa.field(_KEY, pa.int64(), False), keys)
        schema = pa.schema([f.with_nullable(f.nullable and f.name != key) for f in rows.schema])
        rows = rows.cast(schema)
        regions = [mw.bucket(key, 2)] if rng.random() < 0.5 else None
        uri = str(self._folder / f"{next(self._numbers)}")
        options = {} if regions is None else {"regions": regions}
        table = mw.create_table(uri, schema, primary_key=key, **options)
        parts = np.array([rng.randrange(4) for _ in range(len(rows))], np.int64)
        old = rows.take(pa.array(np.array(rng.sample(range(len(rows)), len(rows)), np.int64)))
        replaced = old.set_column(schema.get_field_index(key), schema.field(key), rows[key])
        writer = table.writer()
        for part in range(4):  # to be merged, in two generations, in memory
            later = np.flatnonzero([one > part and rng.random() < 0.3 for one in parts])
            for given in (replaced.take(pa.array(later)), rows.filter(pa.array(parts == part))):
                if len(given):
                    writer.upsert(given)
                if part and len(given) and rng.random() < 0.3:
                    writer.delete(given.select([key]).slice(0, 1))
                    writer.upsert(given.slice(0, 1))
            if part < 3 and len(rows):
                writer.flush()
            if part == 0 and len(rows):
                table.merge()
        if rng.random() < 0.5:  # what was in memory is read from the WAL now
            writer.close()
        return table

    def _move(self, table: mw.Table) -> None:
        """Let rows that were inserted go on to the next place, at times."""
        if self._rng.random() < 0.3:
            table.flush()
            if self._rng.random() < 0.5:
                table.merge()


class WithoutKey:
    """A table that does not show its last column, its key, unless it is told to."""

    answers = None

    def __init__(self, table: mw.Table, rows: int) -> None:
        self.shows_key = False
        self.mounted: MountedTable | None = None
        self._table: Any = table
        self._keys = count(rows)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        schema = self._table.schema
        return schema if self.shows_key else schema.remove(len(schema) - 1)

    @property
    def field_ids(self) -> Mapping[str, int]:
        """Their ids."""
        ids: Mapping[str, int] = self._table.field_ids
        return ids

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key, where it is shown; rows that are inserted get theirs here."""
        return tuple(self._table.primary_key) if self.shows_key else ()

    def planned(self, planner: Any, consistency: str = "strong", filters: Any = ()) -> Any:
        """The plan of a query."""
        return self._table.planned(lambda one: planner(self._of(one)), consistency, filters)

    def snapshot(self, consistency: str = "strong") -> Snapshot:
        """The state of the table."""
        return self._of(self._table.snapshot(consistency))

    def insert(self, rows: pa.Table, columns: pa.Schema) -> Any:
        """Rows of new keys."""
        keys = pa.array([next(self._keys) for _ in range(len(rows))], pa.int64())
        rows = rows.append_column(pa.field(_KEY, pa.int64(), False), keys)
        return self._table.insert(rows, self._table.schema)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def _of(self, snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, info=replace(snapshot.info, schema=self.schema))


def _rows(frame: datafusion.DataFrame) -> pa.Table:
    if _ODD.search(str(frame.schema())):  # the Python library has no such values
        casts = [datafusion.col(quoted(one)).cast(pa.string()) for one in frame.schema().names]
        frame = frame.select(*casts)
    batches = frame.collect()
    return pa.Table.from_batches(batches, batches[0].schema if batches else frame.schema())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], one.type) for one in schema], schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type without views."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_plain(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind
