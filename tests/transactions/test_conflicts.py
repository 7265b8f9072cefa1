"""What others do between the beginning and the commit of a transaction is a conflict, or does not
matter; never a lost update."""

from __future__ import annotations

import gc
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import TransactionUnknownError
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.transaction.commit import Commit
from memwal_sql.write.coordinator import AtomicWrite
from tests.model.process import as_another_process
from tests.model.writing import session_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64())])
DAYS = pa.schema([pa.field("day", pa.int64(), False), pa.field("id", pa.int64(), False)])


def made(uri: str, regions: str = "bucket(id, 2)") -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions=regions)
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "n": [100, 100]})
    return table


def test_a_conflict_has_the_keys_as_users_write_them(fast_folder: Path) -> None:
    schema = pa.schema(
        [pa.field("d", pa.date32(), False), pa.field("m", pa.decimal128(9, 2), False)]
    )
    keys = [(date(2024, 1, 2), Decimal("1.50")), (date(2024, 1, 3), Decimal("2.00"))]
    table = mw.create_table(str(fast_folder / "keys"), schema, ["d", "m"])
    with table.writer() as writer:
        writer.upsert([{"d": keys[1][0], "m": keys[1][1]}])
        tx = mw.transaction(table)
        tx.upsert(table, [{"d": d, "m": m} for d, m in keys])
        writer.upsert([{"d": keys[0][0], "m": keys[0][1]}])
        with pytest.raises(mw.ConflictError) as raised:
            tx.commit()
    assert raised.value.keys == frozenset(keys[:1])


def overwrite(table: mw.Table) -> None:
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT OVERWRITE t VALUES (1, 5)")


def overwrite_elsewhere(table: mw.Table) -> None:
    with as_another_process():
        overwrite(mw.open_table(table.uri))


def write_elsewhere(table: mw.Table) -> None:
    with as_another_process(), mw.open_table(table.uri).writer() as writer:
        writer.upsert({"id": [1], "n": [5]})


def flush_elsewhere(table: mw.Table) -> None:
    with as_another_process(), mw.open_table(table.uri).writer() as writer:
        writer.upsert({"id": [1], "n": [5]})
        writer.flush()


def write_buffered(table: mw.Table) -> None:
    writer = table.writer(durable=False)
    writer.upsert({"id": [1], "n": [5]})


def write_here(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [1], "n": [5]})


OTHERS = (
    overwrite,
    overwrite_elsewhere,
    write_elsewhere,
    flush_elsewhere,
    write_buffered,
    write_here,
)


def test_no_update_is_lost(fast_folder: Path) -> None:
    """To others while this process has no writer; where it has one they are cases of
    tests/write/conditional/test_first_committer.py."""
    for number, other in enumerate(OTHERS):
        table = made(str(fast_folder / str(number)))
        tx = mw.transaction(table)
        n = tx.get(table, [1])["n"][0].as_py()
        tx.upsert(table, {"id": [1], "n": [n + 1]})
        other(table)
        with pytest.raises((mw.ConflictError, mw.FencedError)):
            tx.commit()
        assert table.get([1])["n"].to_pylist() == [5], other
        table.close()
        gc.collect()


def test_two_transactions_that_read_where_the_other_makes_a_region(fast_folder: Path) -> None:
    """Write skew over regions that do not exist: one of the two fails, whatever they read by."""
    reads: tuple[Callable[[mw.Transaction, mw.Table, int], Any], ...] = (
        lambda tx, t, day: tx.sql(f"SELECT count(*) FROM t WHERE day = {day}").to_pylist(),
        lambda tx, t, day: tx.scan(t, filter=f"day = {day}").read_all(),
        lambda tx, t, day: tx.get(t, [(day, 1)]),
        lambda tx, t, day: tx.table(t).count_rows(f"day = {day}"),
    )
    for number, read in enumerate(reads):
        table = mw.create_table(
            str(fast_folder / str(number) / "t"), DAYS, ["day", "id"], regions="identity(day)"
        )
        with table.writer() as writer:
            writer.upsert({"day": [1], "id": [1]})
        both = [mw.transaction(table, isolation="serializable") for _ in range(2)]
        for tx, day, written in zip(both, (5, 6), (6, 5), strict=True):
            read(tx, table, day)
            tx.upsert(table, {"day": [written], "id": [1]})
        both[0].commit()
        with pytest.raises(mw.ConflictError):
            both[1].commit()
        table.close()


def test_two_transactions_that_expect_where_the_other_makes_a_region(fast_folder: Path) -> None:
    """The second commits after the first has claimed the table that it expects to stay, and before
    it makes its region in the other one."""
    tables = sorted(
        (made(str(fast_folder / name), "identity(id)") for name in ("a", "b")),
        key=lambda table: table.context.identity,
    )
    first, second = mw.transaction(*tables), mw.transaction(*tables)
    for tx, expected, written in zip((first, second), tables, reversed(tables), strict=True):
        tx.expect(expected, expected.change_offsets())
        tx.upsert(written, {"id": [3], "n": [3]})
    shares, calls = Commit._shares, [second.commit]

    def overtaken(self: Commit, *given: Any) -> Any:
        taken = shares(self, *given)
        if calls:
            calls.pop()()
        return taken

    with patch.object(Commit, "_shares", overtaken), pytest.raises(mw.ConflictError):
        first.commit()
    assert second.committed
    assert [table.count_rows() for table in tables] == [3, 2]


def test_a_statement_reads_the_regions_that_its_condition_leaves(fast_folder: Path) -> None:
    matched = "WHEN MATCHED THEN UPDATE SET n = t.n + s.n"
    statements = (
        "UPDATE t SET n = n + 1 WHERE day = 1",
        "UPDATE t SET n = n + (SELECT count(*) FROM t WHERE day = 1) WHERE day = 1 AND id < 9",
        "DELETE FROM t WHERE day = 1",
        f"MERGE INTO t USING (SELECT 1 AS day, 1 AS id, 5 AS n) AS s ON t.day = s.day AND "
        f"t.id = s.id {matched}",
        f"MERGE INTO t USING (SELECT day, id, n FROM t WHERE day = 1) AS s ON t.day = s.day AND "
        f"t.id = s.id {matched}",
        "INSERT INTO t SELECT day, id + 1, n FROM t WHERE day = 1",
    )
    for number, statement in enumerate(statements):
        table = mw.create_table(
            str(fast_folder / str(number) / "t"),
            pa.schema([*DAYS, pa.field("n", pa.int64())]),
            ["day", "id"],
            regions="identity(day)",
        )
        with table.writer() as writer:
            writer.upsert([{"day": day, "id": 1, "n": 0} for day in (1, 2)])
        table.close()
        for day, id_ in ((2, 1), (1, 2)):
            tx = mw.transaction(table, isolation="serializable")
            tx.sql(statement)
            with as_another_process(), mw.open_table(table.uri).writer() as writer:
                writer.upsert([{"day": day, "id": id_, "n": 7}])
            if day == 2:
                tx.commit()
                assert table.get([(2, 1)])["n"].to_pylist() == [7], statement
                continue
            with pytest.raises(mw.ConflictError):
                tx.commit()
            table.close()


def test_a_table_under_two_names_is_one(fast_folder: Path) -> None:
    table, again = made(str(fast_folder / "t")), mw.open_table(str(fast_folder / "t"))
    with mw.transaction(table, named={"alias": table, "again": again}) as tx:
        tx.sql("UPDATE t SET n = n + 1 WHERE id = 1")
        tx.sql("UPDATE alias SET n = n + 1 WHERE id = 1")
        tx.upsert("again", {"id": [1]}, set={"n": "t.n + 1"})
    assert table.get([1])["n"].to_pylist() == [103]


@pytest.mark.parametrize("step", ["_put_intents", "_put_record"])
def test_an_outcome_is_of_the_latest_attempt(fast_folder: Path, step: str) -> None:
    """The first attempt was aborted; the second is on its way, with or without entries in the log,
    and can't be committed any more."""
    table = made(str(fast_folder / "t"))
    records = Transactions(open_store(table.uri))
    records.abort("m", "a claim")
    tx = mw.transaction(table, id="m")
    tx.upsert(table, {"id": [1], "n": [1]})
    go_on = getattr(AtomicWrite, step)

    def asked_first(self: AtomicWrite, *given: Any) -> Any:
        assert mw.outcome(table, id="m") == "aborted"
        return go_on(self, *given)

    with patch.object(AtomicWrite, step, asked_first), pytest.raises(mw.RetryError):
        tx.commit()
    assert table.get([1])["n"].to_pylist() == [100]
    assert mw.outcome(table, id="m") == "aborted"


def test_a_statement_of_unknown_outcome_is_not_run_again(fast_folder: Path) -> None:
    table = made(str(fast_folder / "t"), regions="identity(id)")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    land = AtomicWrite.land

    def unknown(self: AtomicWrite) -> Any:
        land(self)
        table.close()
        raise TransactionUnknownError("it is unknown", "id")

    with patch.object(AtomicWrite, "land", unknown), pytest.raises(TransactionUnknownError):
        mw.sql(ctx, "UPDATE t SET n = n + 1")
    assert table.to_arrow().sort_by("id")["n"].to_pylist() == [101, 101]


def test_nothing_is_remembered_for_a_transaction_that_is_over(fast_folder: Path) -> None:
    table = made(str(fast_folder / "t"), regions="unsharded()")
    with table.writer() as writer:
        writer.upsert({"id": [1], "n": [1]})
        (region,) = writer.claim_all()

        def expires(tx: mw.Transaction) -> None:
            tx._deadline = 0.0
            with pytest.raises(mw.ConflictError, match="took longer"):
                tx.get(table, [1])

        for end in (mw.Transaction.rollback, mw.Transaction.commit, expires):
            tx = mw.transaction(table)
            writer.upsert({"id": [7], "n": [7]})
            assert region.recent._writes
            end(tx)
            writer.upsert({"id": [8], "n": [8]})
            assert not region.recent._writes


def test_buffered_rows_count_for_what_is_expected(fast_folder: Path) -> None:
    table = made(str(fast_folder / "t"))
    with table.writer(durable=False) as writer:
        offsets = table.change_offsets()
        writer.upsert({"id": [1], "n": [7]})
        with mw.transaction(table) as tx, pytest.raises(mw.ConflictError):
            tx.expect(table, offsets)


def test_a_transaction_that_writes_nothing_commits_if_what_it_rests_on_stays(
    fast_folder: Path,
) -> None:
    """At snapshot isolation reads are of one state, and nothing more was asked for."""

    def elsewhere(table: mw.Table, key: int) -> None:
        with as_another_process(), mw.open_table(table.uri).writer() as writer:
            writer.upsert({"id": [key], "n": [5]})

    def expects(tx: mw.Transaction, table: mw.Table) -> None:
        tx.expect(table, table.change_offsets())

    def gets(tx: mw.Transaction, table: mw.Table) -> None:
        tx.get(table, [1, 4])

    def scans(tx: mw.Transaction, table: mw.Table) -> None:
        tx.sql("SELECT sum(n) FROM t").to_pylist()

    # What a transaction does, its isolation, the key that others write, and whether that conflicts.
    cases = (
        (expects, "snapshot", None, False),
        (expects, "snapshot", 2, True),
        (expects, "snapshot", 3, True),  # a new region
        (gets, "snapshot", 1, False),
        (scans, "snapshot", 1, False),
        (gets, "serializable", None, False),
        (gets, "serializable", 1, True),
        (gets, "serializable", 2, False),
        (gets, "serializable", 4, True),
        (gets, "serializable", 3, False),
        (scans, "serializable", 2, True),
        (scans, "serializable", 3, True),
    )
    for number, (does, isolation, key, conflicts) in enumerate(cases):
        uri = str(fast_folder / str(number) / "t")
        table, audited = made(uri, "identity(id)"), str(number)
        tx = mw.transaction(table, isolation=isolation, id=audited)  # type: ignore[arg-type]
        does(tx, table)
        if key is not None:
            elsewhere(table, key)
        if conflicts:
            with pytest.raises(mw.ConflictError, match="written or claimed by others") as raised:
                tx.commit()
            assert raised.value.table == table.uri, number
            assert mw.outcome(table, id=audited) == "aborted", number
        else:
            assert tx.commit().rows == 0, number
            assert mw.outcome(table, id=audited) == "committed", number
        table.close()


def test_a_flush_and_a_merge_are_no_conflict_for_a_transaction_that_writes_nothing(
    fast_folder: Path,
) -> None:
    table = made(str(fast_folder / "t"))
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "n": [7, 7]})
        offsets = table.change_offsets()
        tx = mw.transaction(table, isolation="serializable")
        tx.expect(table, offsets)
        writer.flush()
        table.merge()
        assert tx.table(table).count_rows() == 2
        assert tx.commit().rows == 0
    table.close()


def test_arguments_are_checked(fast_folder: Path) -> None:
    table = made(str(fast_folder / "t"))
    table.checkpoint("c")
    past = table.as_of(checkpoint="c")
    calls: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: mw.transaction(table, id=5), "id=5 must be"),  # type: ignore[arg-type]
        (lambda: mw.transaction(table, actor=5), "actor=5 must be"),  # type: ignore[arg-type]
        (lambda: mw.transaction(table, actor="a" * 1001), "has 1,001 characters: 1,000 are"),
        (
            lambda: mw.sql(session_of("t", table), f"SET memwal.actor = '{'a' * 1001}'"),
            "has at most 1,000 characters",
        ),
        (lambda: mw.transaction(table, timeout_s=float("nan")), "timeout_s=nan"),
        (lambda: mw.transaction(table.uri), "is not a table"),  # type: ignore[arg-type]
        (lambda: mw.transaction(past), "is a past state"),
        (lambda: mw.outcome(id="x"), "give the tables"),
        (lambda: mw.history(), "give the tables"),
        (lambda: mw.history(table, limit=-1), "limit=-1"),
    )
    for call, message in calls:
        with pytest.raises(mw.InvalidCallError, match=message):
            call()
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    ctx.sql("BEGIN")
    for setting in ("actor = 'eve'", "isolation = 'serializable'"):
        with pytest.raises(mw.UnsupportedError, match="of the open transaction"):
            ctx.sql(f"SET memwal.{setting}")
    ctx.sql("ROLLBACK")
