"""What tests of statements share."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes import reading
from memwal_sql.statements.queries import query_frames
from memwal_sql.statements.queries.planning import planning_errors
from tests.statements.beside_duckdb import SCHEMA

Call = Callable[[], object]
Meanwhile = Callable[..., None]
Between = Callable[[Call], None]


@pytest.fixture
def ctx() -> datafusion.SessionContext:
    return datafusion.SessionContext()


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    """`t`, which queries alone read as it was recorded."""
    table = mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"], regions="bucket(id, 2)")
    yield mw.register(ctx, "t", table, "eventual")
    table.close()


@pytest.fixture
def meanwhile(ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Makes a call, or runs a statement, when the next query of a statement has been answered, or
    its keys have been looked up, or one `after` it."""
    calls: list[Call | None] = []
    frame, get = query_frames.query_frame, reading.Reading.get

    def make_next() -> None:
        call = calls.pop(0) if calls else None
        if call is not None:
            call()

    def read(*args: object, **named: object) -> datafusion.DataFrame:
        with planning_errors():
            found = ctx.from_arrow(frame(*args, **named).to_arrow_table())
        make_next()
        return found

    def look_up(*args: Any) -> pa.Table:
        found = get(*args)
        make_next()
        return found

    def make(call: Call | str, after: int = 0) -> None:
        run = (lambda: mw.sql(ctx, call)) if isinstance(call, str) else call
        calls[:] = [*[None] * after, run]

    monkeypatch.setattr(reading, "query_frame", read)
    monkeypatch.setattr(reading.Reading, "get", look_up)
    return make


@pytest.fixture
def between(ctx: datafusion.SessionContext) -> Between:
    """Makes a call after the next query has read a row, in another thread."""
    calls: list[Callable[[], object]] = []
    turn = Lock()  # of the query's partitions

    def seen(values: pa.Array) -> pa.Array:
        if turn.acquire(blocking=False):
            try:
                with ThreadPoolExecutor(1) as other:
                    if calls:
                        other.submit(calls.pop(0)).result()
            finally:
                turn.release()
        return pa.array([0] * len(values), pa.int64())

    ctx.register_udf(datafusion.udf(seen, [pa.int64()], pa.int64(), "volatile", "seen"))
    return calls.append
