"""What a session of another process does, which lives as long as that."""

from typing import Any

import datafusion

import memwal_sql as mw

_ctx: list[datafusion.SessionContext] = []


def connect(uris: dict[str, str]) -> None:
    """Have a serializable session, and no other, with these tables."""
    ctx = datafusion.SessionContext()
    for name, uri in uris.items():
        mw.register(ctx, name, mw.open_table(uri))
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    _ctx[:] = [ctx]


def run(statement: str) -> list[dict[str, Any]]:
    """The answer of a statement."""
    rows: list[dict[str, Any]] = mw.sql(_ctx[0], statement).to_pylist()
    return rows
