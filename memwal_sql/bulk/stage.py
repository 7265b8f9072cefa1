"""Staging: the tasks of a distributed write leave rows for the publisher (protocol rule 24).

A task divides its rows by region and stages each region's part in a folder of its own that nothing
points to: a large part as a generation that only has to be given its number, small ones as Arrow
bytes, together in one file, or in the task's message while they are few. So a task that is killed,
retried or run twice changes nothing, and only what the messages of a finished job name is ever
published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import write_fragments

from exec_nodes.evolution.match import FIELD_ID_KEY
from exec_nodes.evolution.project import numbered
from exec_nodes.lance.reading import written
from memwal_sql.bulk.changes import CHANGE, ChangeReader, once_each
from memwal_sql.bulk.key_runs import Runs, runs_of
from memwal_sql.bulk.rows import GIVEN, ORDER, RowForm, RowReader, newest
from memwal_sql.errors import NotFoundError, ReopenError
from memwal_sql.state.batch_marks import check_id
from memwal_sql.state.context import TableContext
from memwal_sql.state.generation_writer import GenerationWriter
from memwal_sql.storage import paths
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.ingest.missing import KEEP
from memwal_sql.write.router import RegionKey, Router
from planner.regions.factories import unsharded
from planner.regions.ids import region_id
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

_KIB, _MIB = 1 << 10, 1 << 20
_FIRST_TASKS = 32


@dataclass(frozen=True, slots=True)
class StageLimits:
    """When a task writes what, in bytes in memory.

    Attributes:
        joined: the rows that are gathered before they are routed: for a few large tables that costs
            less a row than for Spark's batches.
        buffered: beyond it the task's largest region is staged, and its buffer let go of.
        generation: a region's part of this size becomes a generation at once.
        inline: so much of a task's rows travels in its message to the driver, which holds the
            messages of all tasks.
    """

    joined: int = 131_072
    buffered: int = 256 * _MIB
    generation: int = 8 * _MIB
    inline: int = 16 * _KIB

    @classmethod
    def of_task(cls, number: int) -> StageLimits:
        """Where small batches have few tasks, their rows travel in messages. All messages are on
        the driver together: tasks beyond the first ones send little."""
        return cls(inline=512 * _KIB) if number < _FIRST_TASKS else cls()


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """Rows of one region, every key once.

    Exactly one of `folder` (a generation's, from the table's root), `fragments` (data files of the
    base table as Lance describes them, in JSON), `path` (of a file with Arrow bytes from `start` to
    `end` on) and `data` (the bytes) is set. `order` is where the keys of the first two are, and
    what orders and compares them, if that was staged. `bloom_checksum` is that of a generation.
    `runs` are those that the hashes of the keys lie in.
    """

    key: RegionKey
    values: Mapping[str, RegionValue]
    rows: int
    size: int
    folder: str | None = None
    path: str | None = None
    start: int = 0
    end: int = 0
    data: bytes | None = None
    order: str | None = None
    fragments: tuple[str, ...] = ()
    bloom_checksum: int | None = None
    runs: Runs = ()

    @property
    def large(self) -> bool:
        """Whether it can stay where it is."""
        return self.folder is not None or bool(self.fragments)


@dataclass(frozen=True, slots=True)
class StagedTask:
    """The staged pieces of one task: the later one of a region's pieces is newer. `columns` are the
    field ids of the table's columns that the task knew, or, if others keep their values, of those
    that its rows have; None for all. `incarnation` is the table's, and `spec_id` that of the region
    spec that divided the rows; None without pieces."""

    pieces: tuple[StagedPiece, ...]
    columns: frozenset[bytes] | None = None
    form: RowForm = field(default_factory=RowForm)
    incarnation: UUID | None = None
    spec_id: int | None = None
    moves: bool = False


class Stager:
    """Stages the rows of one attempt of one task."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        writer: GenerationWriter,
        spec: RegionSpec,
        form: RowForm,
        folder: str,
        limits: StageLimits,
    ) -> None:
        """`form` is spelt out. `folder` is the job's, below the staging folder; an attempt has one
        of its own in it."""
        self._store = store
        self._writer = writer
        self._spec = spec
        self._router = Router(spec)
        self._form = form
        self._reader = ChangeReader(writer.info) if form.changes else RowReader(form, writer.info)
        self._numbered = numbered(writer.info.schema, writer.base.lance_schema)
        self._folder = f"{folder}/{uuid4().hex}"
        self._limits = limits
        self._buffers: dict[RegionKey, _Buffer] = {}
        self._pieces: list[StagedPiece] = []
        self._small_bytes = 0  # of pieces with their bytes
        self._given: list[str] | None = None
        self._numbers = count(1)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedTask:
        """Stage all rows. Raises InvalidCallError naming a value that does not fit."""
        for table in _joined(batches, self._limits.joined):
            if isinstance(self._reader, RowReader):
                self._given = self._reader.given_columns(table.column_names)
            for part in self._router.route(self._reader.read(table)):
                buffer = self._buffers.setdefault(part.key, _Buffer(part.values))
                buffer.add(part.rows)
            while sum(b.nbytes for b in self._buffers.values()) > self._limits.buffered:
                largest = max(self._buffers, key=lambda key: self._buffers[key].nbytes)
                self._stage(largest, self._buffers.pop(largest))
        for key, buffer in self._buffers.items():
            self._stage(key, buffer)
        if self._small_bytes > self._limits.inline:
            self._put_small()
        return StagedTask(
            tuple(self._pieces),
            self._known(),
            self._form,
            self._writer.context.incarnation,
            self._spec.spec_id,
            isinstance(self._reader, ChangeReader) and self._reader.moves,
        )

    def _known(self) -> frozenset[bytes]:
        names = self._given if self._form.missing == KEEP else None
        known = (f for f in self._numbered if names is None or f.name in names)
        return frozenset(f.metadata[FIELD_ID_KEY] for f in known)

    def _stage(self, key: RegionKey, buffer: _Buffer) -> None:
        primary_key = self._writer.info.primary_key
        if self._form.changes:
            rows = once_each(buffer.table(), list(primary_key))
        else:
            rows = newest(buffer.table(), primary_key, self._form.duplicates)
        size, runs = int(rows.nbytes), runs_of(rows.select(list(primary_key)).columns)
        if size >= self._limits.generation:
            self._pieces.append(replace(self._large(key, buffer.values, rows), runs=runs))
            return
        data = to_bytes(self._with_ids(rows))
        self._pieces.append(
            StagedPiece(key, buffer.values, rows.num_rows, size, data=data, runs=runs)
        )
        self._small_bytes += len(data)
        if self._small_bytes >= self._limits.generation:
            self._put_small()

    def _put_small(self) -> None:
        """Put the bytes of small pieces into one file."""
        contents = [piece.data for piece in self._pieces if piece.data is not None]
        path, end = self._put(b"".join(contents)), 0
        for place, piece in enumerate(self._pieces):
            if piece.data is not None:
                start, end = end, end + len(piece.data)
                self._pieces[place] = replace(piece, data=None, path=path, start=start, end=end)
        self._small_bytes = 0

    def _large(
        self, key: RegionKey, values: Mapping[str, RegionValue], rows: pa.Table
    ) -> StagedPiece:
        """A generation that lacks its number."""
        order = None
        if apart := _not_stored(rows):
            order = self._put_keys(rows)
            rows = rows.drop_columns(apart)
        region = region_id(self._writer.context.incarnation, self._spec.spec_id, values)
        written = self._writer.write_into(self._folder, region, next(self._numbers), rows)
        folder = f"{self._folder}/{paths.generation_folder(region, written.path)}"
        return StagedPiece(
            key,
            values,
            rows.num_rows,
            int(rows.nbytes),
            folder=folder,
            order=order,
            bloom_checksum=written.bloom_checksum,
        )

    def _with_ids(self, rows: pa.Table) -> pa.Table:
        """The rows with field ids in the schema: a column may be renamed before they are read."""
        ids = {field.name: field for field in self._numbered}
        fields = [ids.get(field.name, field) for field in rows.schema]
        return pa.Table.from_arrays(rows.columns, schema=pa.schema(fields))

    def _put_keys(self, rows: pa.Table) -> str:
        return self._put(
            to_bytes(rows.select([*self._writer.info.primary_key, *_not_stored(rows)]))
        )

    def _put(self, data: bytes) -> str:
        path = f"{self._folder}/{next(self._numbers)}.arrow"
        self._store.put_if_absent(path, data)
        return path


def _not_stored(rows: pa.Table) -> list[str]:
    """Their columns that are not stored."""
    return [name for name in (ORDER, GIVEN, CHANGE) if name in rows.column_names]


class _Buffer:
    """Rows of one region that are not staged yet."""

    def __init__(self, values: Mapping[str, RegionValue]) -> None:
        self.values = values
        self.nbytes = 0
        self._batches: list[pa.RecordBatch] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self.nbytes += rows.nbytes
        self._batches.append(rows)

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches)


def to_bytes(rows: pa.Table) -> bytes:
    """Rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions()) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def check_table(context: TableContext, tasks: Iterable[StagedTask]) -> None:
    """Raise ReopenError for rows that were staged for a table that was here before: its columns and
    regions had other ids."""
    if any(task.pieces and task.incarnation != context.incarnation for task in tasks):
        raise ReopenError(
            f"the table of {context.uri} was dropped or made anew since these rows were staged: "
            "nothing was written, run the job again if they belong into the one that is here now"
        )


def discard(store: ObjectStore, folder: str) -> None:
    """Remove the staged files of a job. Attempts that still run may leave some."""
    with suppress(NotFoundError):
        store.delete_in_bulk([meta.path for meta in store.list(folder)])


def staging_folder(job: str) -> str:
    """The folder of a job or query. Raises InvalidCallError for an invalid id: staged files are
    deleted with the folder."""
    check_id("job", job)
    return f"{paths.STAGING_FOLDER}/{job}"


def _joined(batches: Iterable[pa.RecordBatch], least: int) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= least:
            yield pa.Table.from_batches(gathered)
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered)


class FragmentStager(Stager):
    """Stages the rows of one attempt of one task for a replacement of all rows: as data files of
    the base table itself (protocol rule 24).

    Regions play no part in it, so a task writes few large files, and the driver only names them in
    its commit. Lance's own cleanup removes the files of tasks that were killed and of jobs that
    failed, as nothing ever refers to them.
    """

    def __init__(
        self,
        *,
        store: ObjectStore,
        writer: GenerationWriter,
        form: RowForm,
        folder: str,
        limits: StageLimits,
    ) -> None:
        whole = RegionSpec(1, (unsharded(),))
        super().__init__(
            store=store, writer=writer, spec=whole, form=form, folder=folder, limits=limits
        )

    def _large(
        self, key: RegionKey, values: Mapping[str, RegionValue], rows: pa.Table
    ) -> StagedPiece:
        """Data files, unless some of the rows delete."""
        if pc.any(rows[TOMBSTONE]).as_py():
            return super()._large(key, values, rows)
        self._writer.context.store.refuse_links(paths.WRITTEN_FOLDERS)
        keys = self._put_keys(rows)
        base = self._writer.base
        kept = rows.drop_columns([TOMBSTONE, *_not_stored(rows)])
        stored = pa.Table.from_arrays(kept.columns, schema=base.schema)
        with written(base.schema, stored.to_batches()) as stream:
            fragments = write_fragments(
                stream,
                base,
                mode="append",
                data_storage_version=base.data_storage_version,
                storage_options=self._writer.context.storage_options,
            )
        described = tuple(json.dumps(fragment.to_json()) for fragment in fragments)
        size = int(rows.nbytes)
        return StagedPiece(key, values, rows.num_rows, size, order=keys, fragments=described)
