"""Calls of this package as coroutines, as `mw.aio`: each is made in a thread of a pool.

A task that is cancelled ends at once. If its call has begun, that goes on in its thread, and rows
that it writes may be durable although nobody hears of it.
"""

from __future__ import annotations

from asyncio import Future, Lock, get_running_loop, shield
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from concurrent.futures import Future as Called
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import lru_cache, partial, wraps
from os import getpid
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

import datafusion
import pyarrow as pa

from exec_nodes.base.transient_threads import TransientThreads
from memwal_sql import create, drop
from memwal_sql.maintain import loop
from memwal_sql.maintain.jobs import JobRun
from memwal_sql.statements import run
from memwal_sql.table import Table as BlockingTable
from memwal_sql.write.table_writer import TableWriter as BlockingWriter

P = ParamSpec("P")
R = TypeVar("R")
B = TypeVar("B", bound=AbstractContextManager[Any])
H = TypeVar("H", bound="_Handle[Any]")

# The most calls at once. The loop's own executor is left to others: it is small, and looks up names
# of hosts.
THREADS = 32


class _Pool(Executor):
    """The threads of these calls. The exit of the process waits for a call under way as for all of
    this package: Python's own pool has no limit to that."""

    def __init__(self) -> None:
        self._threads = TransientThreads(THREADS, "calls of mw.aio")

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Called[R]:
        called = Called[R]()
        self._threads.submit_here(partial(_make, called, partial(fn, *args, **kwargs)))
        return called


def _make(called: Called[R], call: Callable[[], R]) -> None:
    if not called.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        called.set_exception(error)
    else:
        called.set_result(result)


@lru_cache(maxsize=1)
def _pool(_pid: int) -> _Pool:
    """The threads of a process: a fork takes none along."""
    return _Pool()


def _in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
    made = partial(copy_context().run, call, *args, **kwargs)
    return get_running_loop().run_in_executor(_pool(getpid()), made)


def _function(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    @wraps(function)
    async def coroutine(*args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(function, *args, **kwargs)

    return coroutine


def _method(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    @wraps(method)
    async def coroutine(self: _Handle[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _in_thread(method, self.blocking, *args, **kwargs)

    return coroutine


def _opening(
    method: Callable[Concatenate[Any, P], B], handle: Callable[[B], H]
) -> Callable[Concatenate[Any, P], _Opened[H]]:
    @wraps(method)
    def opened(self: _Handle[Any], /, *args: P.args, **kwargs: P.kwargs) -> _Opened[H]:
        return _Opened(lambda: handle(method(self.blocking, *args, **kwargs)))

    return opened


def _stream(
    method: Callable[Concatenate[Any, P], Iterator[pa.RecordBatch]],
) -> Callable[Concatenate[Any, P], AsyncIterator[pa.RecordBatch]]:
    @wraps(method)
    def batches(
        self: _Handle[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncIterator[pa.RecordBatch]:
        return _Batches(lambda: method(self.blocking, *args, **kwargs))

    return batches


class _Batches:
    """The batches of a reader. One that a cancelled call has waited for is the next call's; an
    error is raised by each further call, too."""

    def __init__(self, opens: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._opens = opens
        self._reader: Iterator[pa.RecordBatch] | None = None
        self._coming: Future[pa.RecordBatch | None] | None = None
        self._lock = Lock()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        async with self._lock:
            self._coming = self._coming or _in_thread(self._read)
            batch = await shield(self._coming)
            self._coming = None
        if batch is None:
            raise StopAsyncIteration
        return batch

    def _read(self) -> pa.RecordBatch | None:
        if self._reader is None:
            self._reader = self._opens()
        return next(self._reader, None)


class _Handle(Generic[B]):
    """A handle whose calls are coroutines.

    Attributes:
        blocking: the handle below, whose calls block.
    """

    def __init__(self, blocking: B) -> None:
        self.blocking = blocking

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await _in_thread(self.blocking.__exit__, *raised)

    def __repr__(self) -> str:
        return f"aio.{self.blocking!r}"


class _Opened(Generic[H]):
    """A handle that opens: `await` it, or enter it by `async with`, which closes it."""

    def __init__(self, opens: Callable[[], H]) -> None:
        self._opens = opens

    def __await__(self) -> Generator[Any, None, H]:
        return _in_thread(self._opens).__await__()

    async def __aenter__(self) -> H:
        self._handle = await self
        return self._handle

    async def __aexit__(self, *raised: Any) -> None:
        await self._handle.__aexit__(*raised)


class TableWriter(_Handle[BlockingWriter]):
    """A `memwal_sql.TableWriter` whose calls are coroutines."""

    upsert = _method(BlockingWriter.upsert)
    insert = _method(BlockingWriter.insert)
    delete = _method(BlockingWriter.delete)
    delete_where = _method(BlockingWriter.delete_where)
    update = _method(BlockingWriter.update)
    apply = _method(BlockingWriter.apply)
    sync = _method(BlockingWriter.sync)
    flush = _method(BlockingWriter.flush)
    close = _method(BlockingWriter.close)

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self.blocking.closed


class Table(_Handle[BlockingTable]):
    """A `memwal_sql.Table` whose calls are coroutines. `scan` and `changes` are read by `async
    for`; `writer` and `as_of` are awaited, or entered by `async with`."""

    as_of = _opening(BlockingTable.as_of, lambda table: Table(table))  # noqa: PLW0108
    writer = _opening(BlockingTable.writer, TableWriter)
    scan = _stream(BlockingTable.scan)
    changes = _stream(BlockingTable.changes)
    get = _method(BlockingTable.get)
    to_arrow = _method(BlockingTable.to_arrow)
    to_pandas = _method(BlockingTable.to_pandas)
    to_polars = _method(BlockingTable.to_polars)
    count_rows = _method(BlockingTable.count_rows)
    vector_search = _method(BlockingTable.vector_search)
    full_text_search = _method(BlockingTable.full_text_search)
    hybrid_search = _method(BlockingTable.hybrid_search)
    change_offsets = _method(BlockingTable.change_offsets)
    refresh = _method(BlockingTable.refresh)
    restore = _method(BlockingTable.restore)
    history = _method(BlockingTable.history)
    snapshots = _method(BlockingTable.snapshots)
    checkpoint = _method(BlockingTable.checkpoint)
    checkpoints = _method(BlockingTable.checkpoints)
    drop_checkpoint = _method(BlockingTable.drop_checkpoint)
    create_index = _method(BlockingTable.create_index)
    drop_index = _method(BlockingTable.drop_index)
    build_indexes = _method(BlockingTable.build_indexes)
    indexes = _method(BlockingTable.indexes)
    flush = _method(BlockingTable.flush)
    merge = _method(BlockingTable.merge)
    compact = _method(BlockingTable.compact)
    snapshot_regions = _method(BlockingTable.snapshot_regions)
    collect_garbage = _method(BlockingTable.collect_garbage)
    check = _method(BlockingTable.check)
    overview = _method(BlockingTable.overview)
    regions = _method(BlockingTable.regions)
    generations = _method(BlockingTable.generations)
    wal = _method(BlockingTable.wal)
    files = _method(BlockingTable.files)
    add_columns = _method(BlockingTable.add_columns)
    drop_columns = _method(BlockingTable.drop_columns)
    rename_column = _method(BlockingTable.rename_column)
    set_nullable = _method(BlockingTable.set_nullable)
    set_type = _method(BlockingTable.set_type)
    set_default = _method(BlockingTable.set_default)
    close = _method(BlockingTable.close)

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self.blocking.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns that the handle has read last."""
        return self.blocking.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns."""
        return self.blocking.primary_key

    @property
    def version(self) -> int:
        """The base version that the handle has read last."""
        return self.blocking.version


def _table(function: Callable[P, BlockingTable]) -> Callable[P, _Opened[Table]]:
    @wraps(function)
    def opened(*args: P.args, **kwargs: P.kwargs) -> _Opened[Table]:
        return _Opened(lambda: Table(function(*args, **kwargs)))

    return opened


open_table = _table(create.open_table)
create_table = _table(create.create_table)
enable = _table(create.enable)
drop_table = _function(drop.drop_table)


@wraps(loop.run_all_jobs)
async def run_all_jobs(table: Table, *args: Any, **kwargs: Any) -> list[JobRun]:
    """See `memwal_sql.run_all_jobs`."""
    return await _in_thread(loop.run_all_jobs, table.blocking, *args, **kwargs)


async def sql(
    ctx: datafusion.SessionContext,
    text: str,
    /,
    *,
    options: datafusion.SQLOptions | None = None,
    **parameters: Any,
) -> pa.Table:
    """Run a statement and return its rows; see `memwal_sql.sql`."""
    return await _in_thread(
        lambda: run.sql(ctx, text, options=options, **parameters).to_arrow_table()
    )
