"""The memory that this process gives to what it keeps of tables between queries."""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.resident.store import STORE, memory_bytes

_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), False),
        pa.field("entries", pa.int64(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("hits", pa.int64(), False),
        pa.field("misses", pa.int64(), False),
    ]
)


def configure(*, memory: int | str) -> None:
    """Set how much of the process's memory may hold columns, keys, vectors, texts and what else is
    derived of immutable files, for all tables together.

    Args:
        memory: bytes, or a text like `"512MiB"` or `"2GiB"`; 0 keeps nothing. Without this call it
            is the environment's `MEMWAL_MEMORY`, or a quarter of the machine's memory (or its
            control group's), from 256 MiB to 4 GiB.

    What exceeds a smaller budget is evicted at once. MemTables are no part of it: a writer has its
    own `max_unflushed_bytes`.
    Raises InvalidCallError for any other value.
    """
    STORE.max_bytes = memory_bytes(memory)


def resident() -> pa.Table:
    """What is in that memory, a row a kind: `kind`, `entries`, `bytes`, and how often one was asked
    for and there (`hits`) or not (`misses`) since the process began."""
    kinds = STORE.kinds()
    rows = [{"kind": kind, **vars(use)} for kind, use in kinds.items()]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
