"""A publisher that keeps its claim from batch to batch, as a stream of Spark does, writes between
the beginning and the commit of a transaction: in the log, or as generations that are in no log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.publish import Publisher
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from tests.model.process import as_another_process

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
PATHS = {"the log": 1000, "generations": 0}
Publish = Callable[[], None]


def rows_of(n: int) -> pa.Table:
    return pa.table({"id": [1], "n": [n]}, SCHEMA)


def updates(t: mw.Table, _: mw.Table, publish: Publish) -> None:
    with mw.transaction(t) as tx:
        tx.upsert(t, rows_of(tx.get(t, [1])["n"][0].as_py() + 1))
        publish()


def updates_elsewhere(t: mw.Table, _: mw.Table, publish: Publish) -> None:
    with as_another_process():
        tx = mw.transaction(mw.open_table(t.uri))
        tx.sql("UPDATE t SET n = n + 1")
    publish()
    with as_another_process():
        tx.commit()


def updates_here_with_a_writer(t: mw.Table, other: mw.Table, publish: Publish) -> None:
    """Its cut is one of a claim, and nothing is in memory."""
    with t.writer() as writer:
        writer.upsert(rows_of(1))
        writer.flush()
        updates(t, other, publish)


def expects(t: mw.Table, _: mw.Table, publish: Publish) -> None:
    with mw.transaction(t) as tx:
        tx.expect(t, t.change_offsets())
        publish()


def expects_and_writes(t: mw.Table, other: mw.Table, publish: Publish) -> None:
    with mw.transaction(t, other) as tx:
        tx.expect(t, t.change_offsets())
        tx.upsert(other, rows_of(1))
        publish()


def reads(t: mw.Table, _: mw.Table, publish: Publish) -> None:
    with mw.transaction(t, isolation="serializable") as tx:
        tx.get(t, [1])
        publish()


def reads_and_writes(t: mw.Table, other: mw.Table, publish: Publish) -> None:
    with mw.transaction(t, other, isolation="serializable") as tx:
        tx.upsert(other, rows_of(tx.get(t, [1])["n"][0].as_py()))
        publish()


def joins(t: mw.Table, other: mw.Table, publish: Publish) -> None:
    ctx = mw.SessionContext()
    mw.register(ctx, "t", t)
    mw.register(ctx, "other", other)
    ctx.sql("BEGIN")
    try:
        ctx.sql("SELECT n FROM t").collect()
        publish()
        ctx.sql("SELECT n FROM other").collect()
    finally:
        ctx.sql("ROLLBACK")


CHECKS = (
    updates,
    updates_elsewhere,
    updates_here_with_a_writer,
    expects,
    expects_and_writes,
    reads,
    reads_and_writes,
    joins,
)


@pytest.mark.parametrize("rows", PATHS.values(), ids=PATHS)
def test_a_batch_is_a_conflict(fast_folder: Path, rows: int) -> None:
    for number, check in enumerate(CHECKS):
        t, other = (
            mw.create_table(str(fast_folder / str(number) / name), SCHEMA, "id", "unsharded()")
            for name in ("t", "other")
        )
        publish = partial(_publish, t, t.publisher())
        with LogLimits.set(rows=rows):
            publish(1)
            with pytest.raises(mw.ConflictError):
                check(t, other, partial(publish, 5))
            assert t.get([1])["n"].to_pylist() == [5], check
            publish(6)
        assert t.get([1])["n"].to_pylist() == [6], check
        with t.writer() as writer:
            writer.upsert(rows_of(7))
        assert mw.open_table(t.uri).get([1])["n"].to_pylist() == [7], check
        assert [finding for finding in t.check() if finding.severity != "info"] == [], check
        for table in (t, other):
            table.close()


def _publish(table: mw.Table, publisher: Publisher, n: int) -> None:
    publisher.publish([table.stager("job", RowForm()).stage(rows_of(n).to_batches())])
