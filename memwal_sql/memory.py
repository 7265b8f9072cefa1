"""The memory that this process keeps parts of tables in between queries."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa

from exec_nodes.resident.store import STORE, memory_bytes
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.live.kept import KEYS
from memwal_sql.read.live.settings import LIVE_ROWS, check_live_rows
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
    writers: WriterOptions | None = None,
    live_rows: bool | Literal["check"] | None = None,
) -> None:
    """Set how much memory this process may use for parts of all tables together, and what it may be
    used for.

    Args:
        memory: for columns, keys, vectors, texts and what else is derived of immutable files:
            bytes, or a text like `"512MiB"` or `"2GiB"`; 0 keeps nothing. Where it was never given,
            it is the environment's `MEMWAL_MEMORY`, or a quarter of the machine's memory (or its
            control group's), from 256 MiB to 4 GiB.
        writers: the options of the writers that INSERT and other statements of `mw.sql` and
            `ctx.sql` open from now on, as `mw.WriterOptions(memtable_age_s=10)`; a program gives
            its own to `table.writer`.
        live_rows: whether tables that are queried again and again while rows are written have
            these in memory, one a key; `"check"` also answers each query from the files and raises
            RepairError if the rows differ. Else the environment's `MEMWAL_LIVE_ROWS` (`true`,
            `false` or `check`), or yes.

    What is not given stays as it is. What exceeds a smaller `memory` is evicted at once. MemTables
    are no part of it: a writer has its own `max_unflushed_bytes`.
    Raises InvalidCallError for any other value.
    """
    if writers is not None and not isinstance(writers, WriterOptions):
        raise InvalidCallError(f"writers={writers!r} must be mw.WriterOptions(...)")
    budget = None if memory is None else memory_bytes(memory)
    if live_rows is not None:
        check_live_rows(live_rows)
    if writers is not None:
        STATEMENT_WRITERS.options = writers
    if live_rows is not None:
        LIVE_ROWS.set(live_rows)
        if not live_rows:
            STORE.evict_where(KEYS, lambda _: True)
    if budget is not None:
        STORE.max_bytes = budget


def resident() -> pa.Table:
    """The contents of that memory, one row per kind: `kind`, `entries`, `bytes`, and how often an
    artefact was found (`hits`) or not (`misses`) since the process began."""
    kinds = STORE.kinds()
    rows = [{"kind": kind, **vars(use)} for kind, use in kinds.items()]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
