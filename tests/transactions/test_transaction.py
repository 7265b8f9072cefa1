"""`mw.transaction`: reads of one state with its own writes, and all or nothing at the end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions, free_id
from memwal_sql.storage.retries import Pauses
from memwal_sql.transaction.commit import Commit
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.model.process import Process, as_another_process

ACCOUNTS = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])
JOURNAL = pa.schema([pa.field("id", pa.int64(), False), pa.field("text", pa.string())])
START = {1: 100, 2: 100, 3: 100}


@pytest.fixture
def accounts(fast_folder: Path) -> mw.Table:
    table = mw.create_table(str(fast_folder / "accounts"), ACCOUNTS, "id", regions="bucket(id, 4)")
    with table.writer() as writer:
        writer.upsert({"id": list(START), "n": list(START.values())})
    return table


@pytest.fixture
def journal(fast_folder: Path) -> mw.Table:
    return mw.create_table(str(fast_folder / "journal"), JOURNAL, "id")


def rows(table: mw.Table) -> dict[int, Any]:
    """What another process reads."""
    with as_another_process():
        read = mw.open_table(table.uri).to_arrow()
    return dict(zip(*read.to_pydict().values(), strict=True))


def test_a_state_whose_generations_were_collected_is_to_be_read_again(journal: mw.Table) -> None:
    with journal.writer() as writer:
        writer.upsert({"id": [1], "text": ["a"]})
        writer.flush()
    mine = mw.open_table(journal.uri)
    with mw.transaction(mine) as tx:
        with as_another_process():
            other = mw.open_table(journal.uri)
            other.merge()
            other.collect_garbage(older_than=timedelta(0))
        reads: list[Callable[[], object]] = [
            lambda: tx.get(mine, [1]),
            lambda: tx.table(mine).to_arrow(),
            lambda: tx.table(mine).count_rows(),
        ]
        for read in reads:
            with pytest.raises(mw.SourceGoneError, match="again"):
                read()
        tx.rollback()
    assert rows(journal) == {1: "a"}


def test_a_table_inside_is_a_handle_on_the_beginning(accounts: mw.Table) -> None:
    version = accounts.version
    with mw.transaction(accounts) as tx:
        inside = tx.table(accounts)
        accounts.merge()
        accounts.add_columns({"double": "n * 2"})
        inside.refresh()
        assert inside.version == version < accounts.version
        assert inside.schema == ACCOUNTS != accounts.schema
        assert inside.overview().version == version
        assert type(inside.as_of(accounts.version)) is mw.Table
        assert inside.to_arrow().num_rows == len(START)
        tx.rollback()


def test_a_transfer_over_two_tables(accounts: mw.Table, journal: mw.Table) -> None:
    with mw.transaction(accounts, journal, actor="ana", operation="transfer") as tx:
        assert tx.sql("UPDATE accounts SET n = n - 5 WHERE id = 1").to_pylist() == [{"count": 1}]
        tx.sql("UPDATE accounts SET n = n + 5 WHERE id = 2")
        tx.insert(journal, {"id": [1], "text": ["5 from 1 to 2"]})
        assert rows(accounts) == START and rows(journal) == {}
        seen = tx.sql("SELECT id, n, text FROM accounts JOIN journal USING (id)").to_pylist()
        assert seen == [{"id": 1, "n": 95, "text": "5 from 1 to 2"}]
    assert rows(accounts) == {1: 95, 2: 105, 3: 100}
    assert rows(journal) == {1: "5 from 1 to 2"}
    assert tx.result is not None and tx.result.rows == 3
    (entry,) = mw.history(accounts, journal).to_pylist()
    assert (entry["id"], entry["actor"], entry["operation"]) == (tx.result.id, "ana", "transfer")
    assert entry["tables"] == [accounts.uri, journal.uri] and entry["regions"] > 1
    transactions = set(accounts.changes().read_all()["_transaction"].to_pylist())
    assert transactions == {None, tx.result.id}


def test_reads_see_the_beginning_and_its_own_writes(accounts: mw.Table) -> None:
    """Each kind of read, against a dict."""
    accounts.merge()
    with mw.transaction(accounts) as tx:
        with accounts.writer() as writer:
            writer.upsert({"id": [9], "n": [9]})
        expected = dict(START)
        writes: list[tuple[Callable[[], Any], dict[int, int | None]]] = [
            (lambda: tx.upsert(accounts, {"id": [1, 4], "n": [1, 4]}), {1: 1, 4: 4}),
            (lambda: tx.delete(accounts, [2, 8]), {2: None}),
            (lambda: tx.upsert(accounts, {"id": [4], "n": [5]}, when="s.n < t.n"), {}),
            (lambda: tx.upsert(accounts, {"id": [4], "n": [5]}, set={"n": "t.n + s.n"}), {4: 9}),
            (lambda: tx.sql("INSERT INTO accounts VALUES (2, 7)"), {2: 7}),
            (lambda: tx.sql("DELETE FROM accounts WHERE id = 3"), {3: None}),
        ]
        for write, change in writes:
            write()
            expected = {k: v for k, v in (expected | change).items() if v is not None}
            read = tx.scan(accounts).read_all().to_pydict()
            assert dict(zip(read["id"], read["n"], strict=True)) == expected
            got = tx.get(accounts, list(range(10))).to_pydict()
            assert dict(zip(got["id"], got["n"], strict=True)) == expected
            total = tx.sql("SELECT sum(n) AS s FROM accounts").to_pylist()[0]["s"]
            assert total == sum(expected.values())
            assert tx.table("accounts").count_rows("n > 6") == sum(n > 6 for n in expected.values())
        with pytest.raises(mw.KeysExistError):
            tx.insert(accounts, {"id": [1], "n": [0]})
        tx.rollback()
    assert rows(accounts) == START | {9: 9}


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_the_first_committer_wins(
    accounts: mw.Table, journal: mw.Table, claimed: bool, isolation: Any
) -> None:
    """Cases of what others write meanwhile, and whether that is a conflict."""
    cases: list[tuple[mw.Table, dict[str, Any], bool]] = [
        (accounts, {"id": [1], "n": [0]}, True),
        (journal, {"id": [5], "text": ["others"]}, isolation == "serializable"),
    ]
    for table, others, conflicts in cases:
        before = rows(accounts)
        with accounts.writer() as mine, journal.writer() as more:
            if claimed:
                mine.upsert({"id": list(before), "n": list(before.values())})
                more.upsert({"id": [0], "text": ["claimed"]})
            tx = mw.transaction(accounts, journal, isolation=isolation)
            tx.scan(journal).read_all()
            tx.upsert(accounts, {"id": [1, 2, 3], "n": [7, 7, 7]})
            (mine if table is accounts else more).upsert(others)
            if conflicts:
                with pytest.raises(mw.ConflictError) as raised:
                    tx.commit()
                assert raised.value.table == table.uri and raised.value.region is not None
                assert 7 not in rows(accounts).values()
            else:
                assert tx.commit().rows == 3
                assert rows(accounts) == {1: 7, 2: 7, 3: 7}


def test_an_exception_writes_nothing_and_a_failed_call_leaves_the_rest(
    accounts: mw.Table, journal: mw.Table
) -> None:
    with pytest.raises(ZeroDivisionError), mw.transaction(accounts, journal) as tx:
        tx.upsert(accounts, {"id": [1], "n": [0]})
        raise ZeroDivisionError
    assert rows(accounts) == START
    with mw.transaction(accounts, journal) as tx:
        tx.upsert(accounts, {"id": [1], "n": [0]})
        with pytest.raises(mw.InvalidCallError):
            tx.upsert(journal, {"id": ["x"], "text": [1]})
    assert rows(accounts) == START | {1: 0}


def test_an_id_is_written_once(accounts: mw.Table, journal: mw.Table) -> None:
    """A program that dies before or after its record runs again with its id."""
    for message, change in enumerate(range(1, 5)):
        process = Process(accounts.uri)
        key = f"topic-0-{message}"

        def count(tx: mw.Transaction, table: mw.Table) -> None:
            tx.sql("UPDATE accounts SET n = n + 1 WHERE id < 3")

        process.switch.kill_at(change + 8, before=bool(message % 2))
        try:
            with mw.transaction(process.table, id=key) as tx:
                count(tx, process.table)
        except Exception:
            process.kill()
        for _ in range(3):
            with mw.transaction(mw.open_table(accounts.uri), id=key) as tx:
                if not tx.committed:
                    tx.sql("UPDATE accounts SET n = n + 1 WHERE id < 3")
        process.kill()
        assert rows(accounts) == {1: 101 + message, 2: 101 + message, 3: 100}
        assert mw.outcome(accounts, id=key) == "committed"
    assert mw.outcome(accounts, id="never") == "aborted"


def test_the_outcome_of_an_id_is_that_of_its_last_attempt(accounts: mw.Table) -> None:
    """A record whose put is still under way can't land any more."""
    assert mw.outcome(accounts, id="k") == "aborted"
    path = "/transactions/k~2"
    faults = [Fault("put_if_absent", Kind.TIMEOUT, nth, path) for nth in range(1, 20)]
    table = opened_over(accounts.uri, lambda store: FaultyStore(store, faults))
    with Pauses.set(longest=0), pytest.raises(mw.TransactionUnknownError) as raised:  # noqa: SIM117
        with mw.transaction(table, id="k") as tx:
            frame = tx.sql("SELECT n FROM accounts")
            tx.upsert(table, {"id": [1, 2, 3], "n": [0, 0, 0]})
    assert raised.value.id == "k~2" and raised.value.tables == (accounts.uri,)
    with pytest.raises(mw.InvalidCallError, match="not known whether it is committed"):
        frame.to_arrow_table()
    assert mw.outcome(accounts, id="k") == "aborted"
    record = Transactions(open_store(accounts.uri)).read("k~2")
    assert record is not None and not record.committed


def test_an_id_whose_first_record_was_collected_while_another_attempt_began(
    accounts: mw.Table,
) -> None:
    assert mw.outcome(accounts, id="k") == "aborted"
    with mw.transaction(accounts, id="k") as tx:
        tx.sql("UPDATE accounts SET n = n + 1 WHERE id = 1")
    assert tx.result is not None and tx.result.id == "k~2"
    store = open_store(accounts.uri)
    records = Transactions(store)
    store.delete([records.path("k")])
    assert free_id(records, "k") == records.read("k~2")  # also where no log says it any more
    assert mw.transaction(accounts, id="k").committed
    assert mw.outcome(accounts, id="k") == "committed"


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_that_is_over_takes_no_rows(accounts: mw.Table, commit: bool) -> None:
    tx = mw.transaction(accounts)
    staging = tx.table(accounts).staging
    staging.upsert({"id": [1], "n": [7]})
    if commit:
        tx.commit()
    else:
        tx.rollback()
    for stage in (
        lambda: staging.upsert({"id": [1], "n": [8]}),
        lambda: staging.delete([1]),
        lambda: staging.insert({"id": [9], "n": [8]}),
        lambda: staging.update({"n": "8"}),
    ):
        with pytest.raises(mw.InvalidCallError, match=r"rolled back|the transaction is over"):
            stage()
    assert rows(accounts) == (START | {1: 7} if commit else START)


def test_reads_go_on_after_an_error_behind_the_commit(accounts: mw.Table) -> None:
    with pytest.raises(ZeroDivisionError), mw.transaction(accounts) as tx:
        inside = tx.table(accounts)
        tx.commit()
        raise ZeroDivisionError
    assert inside.count_rows() == len(START)


def test_tables_are_claimed_in_one_order(
    accounts: mw.Table, journal: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transactions that wait for each other's regions would take them from each other."""
    parts, claimed = Commit._shares, list[str]()

    def note(commit: Commit, share: Any, *rest: Any) -> Any:
        claimed.append(share.joined.table.uri)
        return parts(commit, share, *rest)

    monkeypatch.setattr(Commit, "_shares", note)
    for tables in ((accounts, journal), (journal, accounts)):
        with mw.transaction(*tables) as tx:
            tx.upsert(accounts, {"id": [1], "n": [1]})
            tx.upsert(journal, {"id": [1], "text": ["x"]})
    assert claimed[:2] == claimed[2:]


def test_expected_places(accounts: mw.Table, journal: mw.Table) -> None:
    offsets = accounts.change_offsets()
    with mw.transaction(accounts, journal) as tx:
        tx.expect(accounts, offsets)
        tx.upsert(journal, {"id": [1], "text": ["read"]})
    with accounts.writer() as writer:
        writer.upsert({"id": [3], "n": [0]})
    with mw.transaction(accounts, journal) as tx:
        with pytest.raises(mw.ConflictError) as raised:
            tx.expect(accounts, offsets)
        assert raised.value.expected == offsets
        tx.rollback()
    late = mw.transaction(accounts, journal)
    late.expect(accounts, accounts.change_offsets())
    late.upsert(journal, {"id": [2], "text": ["late"]})
    with accounts.writer() as writer:
        writer.upsert({"id": [4], "n": [0]})
    with pytest.raises(mw.ConflictError):
        late.commit()
    assert rows(journal) == {1: "read"}


def test_run_again(accounts: mw.Table) -> None:
    calls: list[int] = []

    def work(tx: mw.Transaction) -> int:
        n: int = tx.get(accounts, [1])["n"][0].as_py()
        calls.append(n)
        if len(calls) < 3:
            with accounts.writer() as writer:
                writer.upsert({"id": [1], "n": [n + 10]})
        tx.upsert(accounts, {"id": [1], "n": [n + 1]})
        return n

    assert mw.run_transaction(work, accounts, id="r") == 120
    assert calls == [100, 110, 120]
    assert mw.run_transaction(work, accounts, id="r") is None
    assert rows(accounts)[1] == 121


def test_calls_that_can_not_be_done_say_so(
    accounts: mw.Table, journal: mw.Table, tmp_path: Path
) -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: mw.transaction(), "give the tables"),
        (lambda: mw.transaction(accounts, id="a b"), "id='a b' must be"),
        (lambda: mw.outcome(accounts, id="a b"), "id='a b' is not the id"),
        (lambda: mw.transaction(accounts, isolation="none"), "isolation="),  # type: ignore[arg-type]
        (lambda: mw.transaction(accounts).get(journal, [1]), "is not a table of this transaction"),
        (lambda: mw.transaction(accounts).table(accounts).merge(), "can't merge"),
    ]
    for call, message in cases:
        with pytest.raises(mw.InvalidCallError, match=message):
            call()
    tx = mw.transaction(accounts)
    tx.rollback()
    with pytest.raises(mw.InvalidCallError, match="the transaction is over"):
        tx.upsert(accounts, {"id": [1], "n": [1]})
