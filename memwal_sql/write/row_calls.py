"""The calls that change rows of a table, of its writers and of transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa

from exec_nodes.arrow.row_stream import RowStream
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.write.conditional.resolve import Compute, LiveRows, Resolved, Resolver
from memwal_sql.write.ingest.conditional_changes import conditional_changes
from memwal_sql.write.ingest.debezium import BinaryText, DecimalText, TextForms
from memwal_sql.write.ingest.files import named_file
from memwal_sql.write.ingest.missing import ERROR, KEEP, MissingInUpsert
from memwal_sql.write.ingest.normalise import Normaliser, Rows
from memwal_sql.write.ingest.pieces import normalised_parts, one_batch
from memwal_sql.write.result import WriteResult
from memwal_sql.write.statement import SNAPSHOT, Isolation, check_isolation
from planner.model import TableInfo


class RowCalls(ABC):
    """What changes rows of one table."""

    def __init__(self, info: TableInfo, rows: LiveRows) -> None:
        """`rows` is the table, for calls that read existing rows."""
        self._schema = info.schema
        self._normaliser = Normaliser(info.schema, info.primary_key)
        self._resolver = Resolver(info.schema, info.primary_key, self._normaliser, rows)

    @abstractmethod
    def _check_open(self) -> None:
        """Raise if no rows are taken."""

    @abstractmethod
    def _write(
        self,
        rows: Rows,
        normalise: Callable[[Any], pa.RecordBatch],
        row_bytes: int = 0,
        *,
        atomic: bool = False,
    ) -> WriteResult:
        """Take the rows that `normalise` makes of the pieces of some; `row_bytes` is the size of a
        row if that makes it larger."""

    @abstractmethod
    def _over_keys(
        self, keys: pa.RecordBatch, compute: Compute, isolation: Isolation = SNAPSHOT
    ) -> WriteResult:
        """Take the rows that `compute` makes of distinct keys."""

    @abstractmethod
    def _over_rows(
        self, select: Callable[[], Resolved], compute: Compute, isolation: Isolation
    ) -> WriteResult:
        """Take the rows that `select` finds, and `compute` for those that were written since."""

    def upsert(
        self,
        data: Any,
        *,
        missing: MissingInUpsert = KEEP,
        when: str | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 (SQL's word)
        isolation: Isolation = SNAPSHOT,
        atomic: bool = False,
    ) -> WriteResult:
        """Insert rows, or replace those with the same primary key; if a key occurs twice, the last
        row wins.

        Args:
            data: any Arrow data, such as tables, readers, datasets and lists of batches, a pandas
                or polars frame, a dict of columns or a list of dicts; or the path of a file with
                rows, such as `"day.parquet"`: Parquet, Arrow, CSV or JSON, as its name ends. A
                stream (a file, reader, dataset, scanner or generator of batches) is read and
                written piece by piece: if a piece is refused or can't be read, the pieces before it
                stay written.
            missing: how to treat columns that `data` lacks. `"keep"`: existing rows keep their
                values, new ones get the default or null. `"null"`: they become null, even in rows
                with a value. `"error"`: the call is refused.
            when: a SQL condition over an existing row, `t`, and the row given, `s`, such as
                `"t.updated_at <= s.updated_at"`: an existing row that does not meet it stays as it
                is. Rows with new keys are always inserted.
            set: SQL expressions over `t` and `s` by column, such as `{"n": "t.n + s.n"}`: the
                values for existing rows, in place of those given.
            isolation: `"serializable"` reads and computes everything again if anything was written
                meanwhile to the regions that were read; so in other methods.
            atomic: whether the rows of all regions become visible together, and none of them if the
                call fails. It takes a second round of requests, and rows that together fit into one
                MemTable. Calls that read rows first are atomic by themselves.

        Rows with one key are applied one after the other. With `when`, `set` or columns to keep,
        existing rows are read first, see `memwal_sql.write.statement`: no update of a key is lost,
        whoever writes it meanwhile.

        Raises InvalidCallError before anything is written if the rows don't fit; BackPressureError
        if nothing was written for lack of room; UnsupportedError for rows that can't be `atomic`,
        and in manual regions for calls that read rows; ConflictError if others kept taking its
        regions; FencedError or WriterFailedError if the writer is finished: open a new one;
        PartlyWrittenError if a call that reads rows first was fenced after it had written some
        regions; TableReplacedError if a flush has found that the base table was overwritten or is
        gone; and UnknownFormatError if a newer version of this package has it.

        Examples:
            >>> with table.writer() as writer:
            ...     result = writer.upsert([{"id": 1, "degrees": 4.5}], missing="keep")
            >>> table.get(1).to_pylist()
            [{'id': 1, 'city': 'Oslo', 'degrees': 4.5}]
        """
        self._check_open()
        check_isolation(isolation)
        expressions = self._resolver.expressions(when, set or {})
        normaliser = self._normaliser
        with named_file(data):
            rows = normaliser.arrow_rows(data, missing)
            lacking = missing == KEEP and normaliser.lacks_columns(rows)
            normalise = partial(normaliser.upserts, missing=ERROR if missing == KEEP else missing)
            if not (lacking or expressions):
                return self._write(rows, normalise, normaliser.row_bytes, atomic=atomic)
            if isinstance(rows, RowStream):
                rows = rows.read_all()
            names = self._schema.names
            batch = normaliser.partial(rows) if lacking else normalise(rows).select(names)
        return self._over_keys(*self._resolver.upsert(batch, expressions), isolation)

    def insert(self, data: Any, *, missing: MissingInUpsert = KEEP) -> WriteResult:
        """Insert rows with new keys. If one exists, raises KeysExistError and writes nothing.

        `data` and `missing` are as in `upsert`: columns that the rows lack have their default or
        null, are null with `missing="null"`, and refused with `missing="error"`.
        It is always serializable, as it reads only the keys that it writes. Raises as `upsert`
        does.
        """
        self._check_open()
        with named_file(data):
            rows = self._normaliser.upserts(data, missing, new=True)
        return self._over_keys(*self._resolver.insert(rows))

    def delete(
        self,
        keys: Any,
        *,
        when: str | None = None,
        isolation: Isolation = SNAPSHOT,
        atomic: bool = False,
    ) -> WriteResult:
        """Delete the rows with these primary keys, whether they exist or not.

        Args:
            keys: values, tuples for a composite key, or rows in any form that `upsert` takes, whose
                primary key columns are read. The path of a file is a `pathlib.Path`, as a text may
                be a key.
            when: a SQL condition over the existing row, `t`; rows that do not meet it stay, and are
                counted, as are keys without a row.
            isolation, atomic: as in `upsert`.

        Examples:
            >>> with table.writer() as writer:
            ...     result = writer.delete([1])
            >>> table.get([1, 2], ["id"]).to_pylist()
            [{'id': 2}]
        """
        self._check_open()
        check_isolation(isolation)
        with named_file(keys if isinstance(keys, PathLike) else None):
            key_columns = self._normaliser.keys(keys)
        if when is None:
            row_bytes = self._normaliser.tombstones(key_columns.slice(0, 1)).nbytes
            return self._write(key_columns, self._normaliser.tombstones, row_bytes, atomic=atomic)
        rows = self._normaliser.tombstones(key_columns)
        expressions = self._resolver.expressions(when, {})
        return self._over_keys(*self._resolver.delete(rows, expressions), isolation)

    def delete_where(self, where: str, *, isolation: Isolation = SNAPSHOT) -> WriteResult:
        """Delete the rows that meet a SQL condition. Rows that begin to meet it during this call
        may stay, unless the isolation is `"serializable"`. Raises as `upsert` does."""
        self._check_open()
        return self._over_rows(*self._resolver.delete_where(where), isolation)

    def update(
        self,
        set: Mapping[str, str],  # noqa: A002
        *,
        where: str | None = None,
        isolation: Isolation = SNAPSHOT,
    ) -> WriteResult:
        """Set columns to the values of SQL expressions over the row, such as `{"n": "n + 1"}`, in
        the rows that meet a condition, or in all. Rows that begin to meet it during this call may
        stay as they are, unless the isolation is `"serializable"`; no other write of a row is lost.
        Raises as `upsert` does."""
        self._check_open()
        return self._over_rows(*self._resolver.update(set, where), isolation)

    def apply(
        self,
        changes: Any,
        *,
        op: str = "_op",
        when: str | None = None,
        atomic: bool = False,
        binary: BinaryText | None = None,
        decimal: DecimalText | None = None,
    ) -> WriteResult:
        """Write a stream of changes in order: rows with a column `op` that gives the kind of each.

        It is `upsert`, `insert`, `update` or `delete`, or a code of Debezium (c, r, u, d), Flink
        (+I, +U, -U, -D) or Delta's change data feed; the rows before an update are left out. Only
        the key of a delete counts.

        Args:
            changes: rows as `upsert` takes them; `table.changes()`, with `op="_change"`; or a list
                of Debezium's messages, envelopes with `before`, `after` and `op`, with or without a
                `payload` around them. None, a tombstone of Kafka, is skipped. An update whose
                `before` has another key deletes that one.
            op: the column; in envelopes it is always `op`.
            when: a SQL condition over an existing row, `t`, and the change, `s`, as in `upsert`.
                For a delete `s` has the columns that it carries, such as Debezium's `before`, and
                null in the others. A deleted row does not exist: a late older change inserts it
                again.
            atomic: as in `upsert`.
            binary: how texts in binary columns encode bytes, in dicts and files of JSON: `base64`
                and `base64-url-safe`, which Debezium sends, or `hex`. In an envelope such a text is
                refused without it.
            decimal: the same for texts in decimal columns, as `decimal.handling.mode` of Debezium:
                `precise` for base64 of the digits, in units of the column's last place, or `string`
                for texts such as `12.50`.

        Raises as `upsert` does.

        Examples:
            >>> with table.writer() as writer:
            ...     result = writer.apply(
            ...         [
            ...             {"op": "upsert", "id": 5, "city": "Bern", "degrees": 8.0},
            ...             {"op": "delete", "id": 1},
            ...         ],
            ...         op="op",
            ...     )
            >>> sorted(table.scan(["id"]).read_all()["id"].to_pylist())
            [2, 5]
        """
        self._check_open()
        forms = TextForms(binary, decimal)
        if when is not None:
            expressions = self._resolver.expressions(when, {})
            with named_file(changes):
                batch = conditional_changes(self._normaliser, self._schema, changes, op, forms)
            return self._over_keys(*self._resolver.upsert(batch, expressions))
        with named_file(changes):
            normaliser, rows = self._normaliser.opened_changes(changes)
            normalise = partial(normaliser.changes, op=op, forms=forms)
            if isinstance(rows, pa.Table | RowStream):
                return self._write(rows, normalise, normaliser.row_bytes, atomic=atomic)
            if isinstance(rows, Iterator):
                stream = RowStream(memtable_schema(self._schema), normalised_parts(rows, normalise))
                return self._write(stream, one_batch, atomic=atomic)
            return self._write(normalise(rows), lambda batch: batch, atomic=atomic)
