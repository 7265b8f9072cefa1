"""The memory and the disk space that this process keeps parts of tables in between queries."""

from __future__ import annotations

import os

import pyarrow as pa

from exec_nodes.resident.store import STORE, memory_bytes
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.cache.settings import CACHE
from memwal_sql.write.options import STATEMENT_WRITERS, WriterOptions

_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), False),
        pa.field("entries", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("hits", pa.int64(), False),
        pa.field("misses", pa.int64(), False),
    ]
)


def configure(
    *,
    memory: int | str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_bytes: int | str | None = None,
    writers: WriterOptions | None = None,
) -> None:
    """Set how much memory and local disk this process may use for parts of tables, all tables
    together.

    Args:
        memory: for columns, keys, vectors, texts and what else is derived of immutable files:
            bytes, or a text like `"512MiB"` or `"2GiB"`; 0 keeps nothing. Where it was never given,
            it is the environment's `MEMWAL_MEMORY`, or a quarter of the machine's memory (or its
            control group's), from 256 MiB to 4 GiB.
        cache_dir: a folder on a local disk for copies of files of tables in object stores, which
            other processes may use too; else the environment's `MEMWAL_CACHE_DIR`. Without one
            nothing is copied. They are in a folder `memwal_sql` in there; what else is in it stays.
            Tables that are open go on as they are.
        cache_bytes: how much these copies may take, as `memory`; else the environment's
            `MEMWAL_CACHE_BYTES`, or 4 GiB. 0 keeps nothing.

        writers: the options of the writers that INSERT and other statements of `mw.sql` and
            `ctx.sql` open from now on, as `mw.WriterOptions(memtable_age_s=10)`; a program gives
            its own to `table.writer`.

    What is not given stays as it is. What exceeds a smaller `memory` is evicted at once. MemTables
    are no part of it: a writer has its own `max_unflushed_bytes`.
    Raises InvalidCallError for any other value, and for `cache_bytes` without a folder.
    """
    if writers is not None and not isinstance(writers, WriterOptions):
        raise InvalidCallError(f"writers={writers!r} must be mw.WriterOptions(...)")
    budget = None if memory is None else memory_bytes(memory)
    if cache_dir is not None or cache_bytes is not None:
        CACHE.set(cache_dir, cache_bytes)
    if writers is not None:
        STATEMENT_WRITERS.options = writers
    if budget is not None:
        STORE.max_bytes = budget


def resident() -> pa.Table:
    """The contents of that memory, one row per kind: `kind`, `entries`, `bytes`, and how often an
    artefact was found (`hits`) or not (`misses`) since the process began."""
    kinds = STORE.kinds()
    rows = [{"kind": kind, **vars(use)} for kind, use in kinds.items()]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
