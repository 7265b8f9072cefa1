"""Staging: the tasks of a distributed write leave rows for the publisher (protocol rule 24).

A task divides its rows by region and stages each region's part in a folder of its own that nothing
points to: a large part as a generation that only has to be given its number, a small one as Arrow
bytes, in the task's message while they are few. So a task that is killed, retried or run twice
changes nothing, and only what the messages of a finished job name is ever published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import write_fragments

from exec_nodes.evolution.project import numbered
from memwal_sql.bulk.rows import ORDER, RowForm, RowReader, newest
from memwal_sql.errors import NotFoundError
from memwal_sql.state.batch_marks import check_id
from memwal_sql.state.generation_writer import GenerationWriter
from memwal_sql.storage import paths
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.router import RegionKey, Router
from planner.regions.factories import unsharded
from planner.regions.ids import region_id
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class StageLimits:
    """When a task writes what, in bytes in memory.

    Attributes:
        buffered: beyond it the task's largest region is staged, and its buffer let go of.
        generation: a region's part of this size becomes a generation at once.
        inline: so much of a task's rows travels in its message to the driver.
    """

    buffered: int = 256 * _MIB
    generation: int = 8 * _MIB
    inline: int = _MIB // 2


@dataclass(frozen=True, slots=True)
class StagedPiece:
    """Rows of one region, every key once.

    Exactly one of `folder` (a generation's, from the table's root), `fragments` (data files of the
    base table as Lance describes them, in JSON), `path` (of Arrow bytes) and `data` (the bytes) is
    set. `order` is where the keys of the first two and their order are, if they were staged.
    `bloom_checksum` is that of a generation.
    """

    key: RegionKey
    values: Mapping[str, RegionValue]
    rows: int
    size: int
    folder: str | None = None
    path: str | None = None
    data: bytes | None = None
    order: str | None = None
    fragments: tuple[str, ...] = ()
    bloom_checksum: int | None = None

    @property
    def large(self) -> bool:
        """Whether it can stay where it is."""
        return self.folder is not None or bool(self.fragments)


@dataclass(frozen=True, slots=True)
class StagedTask:
    """The staged pieces of one task: the later one of a region's pieces is newer. `columns` are
    those that the task knew, with their field ids."""

    pieces: tuple[StagedPiece, ...]
    columns: pa.Schema | None = None


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
    ) -> None:
        """`folder` is the job's, below the staging folder; an attempt has one of its own in it."""
        self._store = store
        self._writer = writer
        self._spec = spec
        self._router = Router(spec)
        self._reader = RowReader(form, writer.info)
        self._numbered = numbered(writer.info.schema, writer.base.lance_schema)
        self._folder = f"{folder}/{uuid4().hex}"
        self._limits = StageLimits()
        self._buffers: dict[RegionKey, _Buffer] = {}
        self._pieces: list[StagedPiece] = []
        self._inline = 0
        self._numbers = count(1)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedTask:
        """Stage all rows. Raises InvalidCallError naming a value that does not fit."""
        for table in _joined(batches):
            for part in self._router.route(self._reader.read(table)):
                buffer = self._buffers.setdefault(part.key, _Buffer(part.values))
                buffer.add(part.rows)
            while sum(b.nbytes for b in self._buffers.values()) > self._limits.buffered:
                largest = max(self._buffers, key=lambda key: self._buffers[key].nbytes)
                self._stage(largest, self._buffers.pop(largest))
        for key, buffer in self._buffers.items():
            self._stage(key, buffer)
        return StagedTask(tuple(self._pieces), self._numbered)

    def _stage(self, key: RegionKey, buffer: _Buffer) -> None:
        info = self._writer.info
        rows = newest(buffer.table(), info.primary_key)
        size = int(rows.nbytes)
        if size >= self._limits.generation:
            piece = self._large(key, buffer.values, rows)
        else:
            data = to_bytes(self._with_ids(rows))
            piece = StagedPiece(key, buffer.values, rows.num_rows, size, data=data)
            if self._inline + len(data) > self._limits.inline:
                path = self._put(data)
                piece = StagedPiece(key, buffer.values, rows.num_rows, size, path=path)
            else:
                self._inline += len(data)
        self._pieces.append(piece)

    def _large(
        self, key: RegionKey, values: Mapping[str, RegionValue], rows: pa.Table
    ) -> StagedPiece:
        """A generation that lacks its number."""
        order = None
        if ORDER in rows.column_names:
            order = self._put_keys(rows)
            rows = rows.drop_columns([ORDER])
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
        ordered = [ORDER] if ORDER in rows.column_names else []
        return self._put(to_bytes(rows.select([*self._writer.info.primary_key, *ordered])))

    def _put(self, data: bytes) -> str:
        path = f"{self._folder}/{next(self._numbers)}.arrow"
        self._store.put_if_absent(path, data)
        return path


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


def discard(store: ObjectStore, folder: str) -> None:
    """Remove the staged files of a job. Attempts that still run may leave some."""
    with suppress(NotFoundError):
        store.delete_in_bulk([meta.path for meta in store.list(folder)])


def staging_folder(job: str) -> str:
    """The folder of a job or query. Raises InvalidCallError for an invalid id: staged files are
    deleted with the folder."""
    check_id("job", job)
    return f"{paths.STAGING_FOLDER}/{job}"


# Routing and filling buffers costs less a row for a few large tables than for Spark's batches.
_JOINED_ROWS = 131_072


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= _JOINED_ROWS:
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
    ) -> None:
        whole = RegionSpec(1, (unsharded(),))
        super().__init__(store=store, writer=writer, spec=whole, form=form, folder=folder)

    def _large(
        self, key: RegionKey, values: Mapping[str, RegionValue], rows: pa.Table
    ) -> StagedPiece:
        """Data files, unless some of the rows delete."""
        if pc.any(rows[TOMBSTONE]).as_py():
            return super()._large(key, values, rows)
        self._writer.context.store.refuse_links(paths.WRITTEN_FOLDERS)
        keys = self._put_keys(rows)
        base = self._writer.base
        kept = rows.drop_columns([name for name in (TOMBSTONE, ORDER) if name in rows.column_names])
        fragments = write_fragments(
            pa.Table.from_arrays(kept.columns, schema=base.schema),
            base,
            mode="append",
            data_storage_version=base.data_storage_version,
            storage_options=self._writer.context.storage_options,
        )
        described = tuple(json.dumps(fragment.to_json()) for fragment in fragments)
        size = int(rows.nbytes)
        return StagedPiece(key, values, rows.num_rows, size, order=keys, fragments=described)
