"""What a session of another process does, which lives as long as that."""

from contextlib import suppress
from typing import Any
from unittest.mock import patch

import datafusion

import memwal_sql as mw
from memwal_sql.write.region_writers import RegionWriters

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


def run_listed_before(statement: str) -> list[dict[str, Any]]:
    """The answer of a statement that listed the regions when there were none yet."""
    every, listed = RegionWriters.claim, list[bool]()

    def first_none(writers: RegionWriters, regions: Any) -> Any:
        listed.append(True)
        return every(writers, () if len(listed) == 1 else regions)

    with patch.object(RegionWriters, "claim", first_none):
        return run(statement)


def run_each(uri: str, statement: str, times: int) -> int:
    """How often a statement went well of so many times."""
    ctx, done = datafusion.SessionContext(), 0
    with mw.open_table(uri) as table:
        mw.register(ctx, "t", table)
        for _ in range(times):
            with suppress(mw.RetryError):
                mw.sql(ctx, statement)
                done += 1
    return done
