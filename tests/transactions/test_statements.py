"""BEGIN, COMMIT and ROLLBACK in `mw.sql`, and queries over several tables in one state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read.region_reads import RegionReads
from memwal_sql.session.session import session_of
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.transaction.handle import OpenTransaction
from tests.each import each
from tests.model.process import as_another_process
from tests.model.waiting import eventually
from tests.statements.test_corpus import entries, shown
from tests.transactions.test_transaction import ACCOUNTS, JOURNAL

START = [(1, 100), (2, 100), (3, 100)]


@pytest.fixture
def tables(fast_folder: Path) -> dict[str, mw.Table]:
    """`accounts` and `journal`."""
    accounts = mw.create_table(
        str(fast_folder / "accounts.lance"), ACCOUNTS, "id", regions="bucket(id, 4)"
    )
    journal = mw.create_table(str(fast_folder / "journal.lance"), JOURNAL, "id")
    with accounts.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "n": [100, 100, 100]})
    return {"accounts": accounts, "journal": journal}


@pytest.fixture
def ctx(tables: dict[str, mw.Table]) -> mw.SessionContext:
    session = mw.SessionContext()
    for name, table in tables.items():
        mw.register(session, name, table)
    return session


def values(ctx: datafusion.SessionContext, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in mw.sql(ctx, query).to_pylist()]


def others(tables: dict[str, mw.Table], name: str) -> list[tuple[Any, ...]]:
    """The rows that another process reads."""
    with as_another_process():
        read = mw.open_table(tables[name].uri).to_arrow().sort_by("id")
    return [tuple(row.values()) for row in read.to_pylist()]


STATEMENTS = [
    "UPDATE accounts SET n = n - 5 WHERE id = 1",
    "UPDATE accounts SET n = n + 5 WHERE id = 2",
    "INSERT INTO journal SELECT id, concat('has ', n) FROM accounts WHERE id < 3",
    "DELETE FROM accounts WHERE id = 3",
]
AFTER = [(1, 95), (2, 105)]
NOTES = [(1, "has 95"), (2, "has 105")]


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        ("BEGIN", "COMMIT"),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", "END TRANSACTION"),
        ("BEGIN", "ROLLBACK"),
        ("START TRANSACTION ISOLATION LEVEL SERIALIZABLE", "ROLLBACK WORK"),
    ],
)
def test_statements_between_begin_and_commit_are_one_transaction(
    tables: dict[str, mw.Table], ctx: mw.SessionContext, begins: str, ends: str
) -> None:
    mw.sql(ctx, "CREATE VIEW total AS SELECT sum(n) AS n FROM accounts")
    mw.sql(ctx, "SET memwal.actor = 'ana'")
    mw.sql(ctx, begins)
    for statement in STATEMENTS:
        mw.sql(ctx, statement)
    reads: list[tuple[Callable[[], Any], Any]] = [
        (lambda: values(ctx, "SELECT * FROM accounts ORDER BY id"), AFTER),
        (lambda: values(ctx, "SELECT * FROM journal ORDER BY id"), NOTES),
        (lambda: values(ctx, "SELECT a.n, text FROM accounts a JOIN journal USING (id)"), 2),
        (lambda: values(ctx, "SELECT n FROM total"), [(200,)]),
        (lambda: ctx.table("accounts").count(), 2),
        (lambda: values(ctx, "SELECT count(*) FROM accounts x, accounts y"), [(4,)]),
    ]
    for read, expected in reads:
        seen = read()
        assert (len(seen) if isinstance(seen, list) and expected == 2 else seen) == expected
    assert others(tables, "accounts") == START and others(tables, "journal") == []
    answer = values(ctx, ends)
    if ends.startswith("ROLLBACK"):
        assert others(tables, "accounts") == START and others(tables, "journal") == []
        assert mw.history(*tables.values(), actor="ana").num_rows == 0
    else:
        assert others(tables, "accounts") == AFTER and others(tables, "journal") == NOTES
        (entry,) = mw.history(*tables.values(), actor="ana").to_pylist()
        assert answer == [(entry["id"], 5)]
        assert entry["operation"] == "; ".join(STATEMENTS)
    assert values(ctx, "SELECT count(*) FROM accounts x, journal y") in ([(4,)], [(0,)])


def test_each_statement_of_the_corpus_does_the_same_inside(fast_folder: Path) -> None:
    """Design: what a statement gives between BEGIN and COMMIT is what it gives outside."""
    refused = 0
    for number, entry in enumerate(entries()):
        session = datafusion.SessionContext()
        session.register_record_batches("s", [pa.table({"id": [2, 4], "n": [5, 7]}).to_batches()])
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("s", pa.string())]
        )
        with mw.create_table(str(fast_folder / str(number)), schema, "id") as table:
            with table.writer() as writer:
                writer.upsert({"id": [1, 2, 3], "n": [10, 20, 30], "s": ["a", "b", "c"]})
            if "AS OF" in entry.text:
                table.checkpoint("start")
            mw.register(session, "t", table)
            text = entry.text.replace("{folder}", str(fast_folder / f"{number}-made"))
            mw.sql(session, "BEGIN")
            try:
                answer = mw.sql(session, text).to_pylist()
            except mw.UnsupportedError as error:
                refused += 1
                assert "transaction" in str(error), entry.text
                continue
            inside = mw.sql(session, "SELECT * FROM t ORDER BY id").to_pylist()
            mw.sql(session, "COMMIT")
            rows = table.to_arrow().sort_by("id").to_pylist()
        assert sorted(shown(answer).split(", ")) == sorted(entry.answer.split(", ")), entry.text
        assert shown(inside) == shown(rows) == entry.rows, entry.text
    assert 0 < refused < 30


def test_what_can_not_be_done_says_so_and_leaves_what_was_staged(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    for outside, message in (("COMMIT", "no transaction is open"), ("ROLLBACK", "no transaction")):
        with pytest.raises(mw.InvalidCallError, match=message):
            mw.sql(ctx, outside)
    mw.sql(ctx, "BEGIN")
    mw.sql(ctx, STATEMENTS[0])
    cases: Sequence[tuple[str, type[Exception], str]] = [
        ("BEGIN", mw.InvalidCallError, "a transaction is open"),
        ("CREATE TABLE x (id INT PRIMARY KEY)", mw.UnsupportedError, "CREATE can't be part"),
        ("ALTER TABLE accounts ADD COLUMN m INT", mw.UnsupportedError, "ALTER can't be part"),
        ("DROP TABLE accounts", mw.UnsupportedError, "DROP can't be part"),
        ("CALL memwal.merge('accounts')", mw.UnsupportedError, "CALL can't be part"),
        ("INSERT OVERWRITE accounts SELECT 1, 2", mw.UnsupportedError, "can't replace all rows"),
        ("SAVEPOINT a", mw.UnsupportedError, "a statement that fails leaves"),
        ("INSERT INTO accounts VALUES ('x', 1)", mw.InvalidCallError, "x"),
        ("UPDATE accounts SET n = 1 / 0 WHERE id = 2", mw.InvalidCallError, "zero"),
        ("COMMIT AND CHAIN", mw.InvalidCallError, "the end of the statement"),
        ("BEGIN ISOLATION LEVEL READ COMMITTED", mw.InvalidCallError, "SERIALIZABLE, SNAPSHOT"),
    ]
    for text, kind, message in cases:
        with pytest.raises(kind, match=message):
            mw.sql(ctx, text)
    mw.sql(ctx, "COMMIT")
    assert others(tables, "accounts") == [(1, 95), (2, 100), (3, 100)]
    only_queries = datafusion.SQLOptions().with_allow_statements(False)
    with pytest.raises(mw.UnsupportedError, match="do not allow"):
        mw.sql(ctx, "BEGIN", options=only_queries)


def test_a_commit_that_fails_ends_the_transaction(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    mw.sql(ctx, "BEGIN")
    mw.sql(ctx, STATEMENTS[0])
    frame = mw.sql(ctx, "SELECT a.n, b.n FROM accounts a, accounts b WHERE a.id = 1 AND b.id = 1")
    with tables["accounts"].writer() as writer:
        writer.upsert({"id": [1], "n": [0]})
        with pytest.raises(mw.ConflictError):
            mw.sql(ctx, "COMMIT")
    assert values(ctx, "SELECT n FROM accounts WHERE id = 1") == [(0,)]
    with pytest.raises(mw.InvalidCallError, match="rolled back"):
        frame.to_pylist()  # would show what never was
    mw.sql(ctx, "BEGIN")
    mw.sql(ctx, "ROLLBACK")


@each("how", ["registered", "catalog", "after BEGIN"])
@each("meanwhile", ["one by one", "together", "flushed", "first only", "second only", "unused"])
def test_a_transaction_reads_one_state(fast_folder: Path, how: str, meanwhile: str) -> None:
    """Of two accounts between which others move money after the first is read, and of one that
    nobody uses. A table that is used later conflicts if those before were written."""
    folder = fast_folder / f"{how}-{meanwhile}"
    uris = {name: str(folder / f"{name}.lance") for name in ("a", "b", "c")}
    tables = {name: mw.create_table(uri, ACCOUNTS, "id") for name, uri in uris.items()}
    for table in tables.values():
        with table.writer() as writer:
            writer.upsert({"id": [1, 2], "n": [100, 0]})
    session = mw.SessionContext()
    prefix = "k.public." if how == "catalog" else ""
    if how == "catalog":
        mw.catalog(session, folder, "k")
    for name, table in tables.items():
        if how == "registered" or (how == "after BEGIN" and name != "b"):
            mw.register(session, name, table)
    mw.sql(session, "BEGIN ISOLATION LEVEL SNAPSHOT")
    if how == "after BEGIN":
        mw.register(session, "b", tables["b"])

    def read(name: str) -> int:
        return int(values(session, f"SELECT n FROM {prefix}{name} WHERE id = 1")[0][0])

    first = read("a")
    with as_another_process():
        _move({name: mw.open_table(uri) for name, uri in uris.items()}, meanwhile)
    moved = meanwhile not in ("second only", "unused")
    with pytest.raises(mw.ConflictError, match="uses another") if moved else nullcontext():
        second = read("b")
        assert (first, second) == (100, 100 + 7 * (meanwhile == "second only"))
    assert read("a") == 100
    if not moved:
        assert read("b") == second
        mw.sql(session, "COMMIT")
    for table in tables.values():
        table.close()


def test_only_tables_that_were_used_take_part_in_the_commit(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    mw.sql(ctx, "BEGIN")
    mw.sql(ctx, "INSERT INTO journal VALUES (1, 'x')")
    with as_another_process(), mw.open_table(tables["accounts"].uri).writer() as writer:
        writer.upsert({"id": [1], "n": [0]})
    (done,) = mw.sql(ctx, "COMMIT").to_pylist()
    assert mw.outcome(tables["journal"], id=done["id"]) == "committed"


def _move(tables: dict[str, mw.Table], meanwhile: str) -> None:
    a, b, c = tables.values()
    steps = {
        "first only": [(a, 93)],
        "second only": [(b, 107)],
        "unused": [(c, 5)],
        "one by one": [(a, 93), (b, 107)],
    }.get(meanwhile)
    if steps is None:
        with mw.transaction(a, b) as tx:
            tx.upsert(a, {"id": [1], "n": [93]})
            tx.upsert(b, {"id": [1], "n": [107]})
    for table, n in steps or ():
        with table.writer() as writer:
            writer.upsert({"id": [1], "n": [n]})
    if meanwhile == "flushed":
        for table in (a, b):
            with table.writer() as writer:
                writer.claim_all()
                writer.flush()


def test_a_table_that_can_not_be_read_keeps_no_transaction_from_others(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    """One that is gone, another one at its place, a past state, and one of an older package."""
    folder = Path(tables["accounts"].uri).parent
    gone = [mw.create_table(str(folder / name), ACCOUNTS, "id") for name in ("gone", "again")]
    for table in gone:
        mw.register(ctx, Path(table.uri).name, table)
        mw.drop_table(table.uri)
    mw.create_table(gone[1].uri, JOURNAL, "id")
    with pytest.warns(UserWarning, match="no record of its regions"):
        past = tables["accounts"].as_of(version=tables["accounts"].version)
    mw.register(ctx, "past", past)
    mw.sql(ctx, "BEGIN")
    assert values(ctx, "SELECT count(*) FROM accounts") == [(3,)]
    mw.sql(ctx, "INSERT INTO journal VALUES (1, 'x')")
    assert values(ctx, "SELECT count(*) FROM past") == [(0,)]
    with pytest.raises(mw.MemWalError):
        values(ctx, "SELECT count(*) FROM gone")
    mw.sql(ctx, "COMMIT")
    assert others(tables, "journal") == [(1, "x")]


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("flushes", [False, True])
def test_a_query_over_several_tables_reads_one_state(
    tables: dict[str, mw.Table],
    ctx: mw.SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    flushes: bool,
    is_empty: bool,
) -> None:
    """A transaction that is committed between the reads of two tables is in both or in none, also
    where it makes the first region of each."""
    if is_empty:
        other = str(Path(tables["accounts"].uri).with_name("empty.lance"))
        tables["accounts"] = mw.create_table(other, ACCOUNTS, "id", regions="bucket(id, 4)")
        mw.register(ctx, "accounts", tables["accounts"])
    read, calls = RegionReads.read, 0

    def overtaken(self: RegionReads, *args: Any, **named: Any) -> Any:
        nonlocal calls
        result = read(self, *args, **named)
        calls += 1
        if calls == 1:
            with as_another_process():
                both = [mw.open_table(table.uri) for table in tables.values()]
                with mw.transaction(*both) as tx:
                    tx.upsert(both[0], {"id": [1], "n": [1]})
                    tx.upsert(both[1], {"id": [1], "text": ["1"]})
                if flushes:
                    for table in both:
                        with table.writer() as writer:
                            writer.claim_all()
                            writer.flush()
        return result

    monkeypatch.setattr(RegionReads, "read", overtaken)
    query = "SELECT (SELECT n FROM accounts WHERE id = 1), (SELECT max(text) FROM journal)"
    assert values(ctx, query) in ([(None if is_empty else 100, None)], [(1, "1")])
    assert calls >= 2


def test_catalogs_and_two_names_of_one_table(tables: dict[str, mw.Table]) -> None:
    session = datafusion.SessionContext()
    folder = tables["accounts"].uri.rpartition("/")[0]
    mw.catalog(session, folder, "bank")
    mw.register(session, "a", tables["accounts"])
    mw.sql(session, "BEGIN")
    mw.sql(session, "UPDATE bank.public.accounts SET n = 1 WHERE id = 1")
    mw.sql(session, "UPDATE a SET n = n + 1 WHERE id = 1")
    assert values(session, "SELECT n FROM a WHERE id = 1") == [(2,)]
    assert values(session, "SELECT n FROM bank.public.accounts WHERE id = 1") == [(2,)]
    assert session.sql("SELECT n FROM bank.public.accounts WHERE id = 1").to_pylist() == [{"n": 2}]
    mw.sql(session, "INSERT INTO bank.public.journal VALUES (1, 'x')")
    mw.sql(session, "COMMIT")
    assert others(tables, "accounts")[0] == (1, 2) and others(tables, "journal") == [(1, "x")]


def test_each_statement_after_the_time_is_over_asks_for_rollback(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    mw.sql(ctx, "BEGIN")
    mw.sql(ctx, "UPDATE accounts SET n = 0")
    transaction = session_of(ctx).slot.open
    assert isinstance(transaction, OpenTransaction)
    transaction._clock = lambda: seconds() + 61
    for _ in range(2):
        for statement in ("SELECT * FROM accounts", "INSERT INTO journal VALUES (1, 'x')"):
            with pytest.raises(
                mw.ConflictError,
                match=r"60\.0 s.*written: run all of it again, in SQL after ROLLBACK",
            ):
                values(ctx, statement)
        with pytest.raises(mw.InvalidCallError, match="is open: COMMIT or ROLLBACK ends it"):
            mw.sql(ctx, "BEGIN")
    mw.sql(ctx, "ROLLBACK")
    mw.sql(ctx, "BEGIN")
    assert values(ctx, "SELECT sum(n) FROM accounts") == [(300,)]
    mw.sql(ctx, "COMMIT")


def test_a_forgotten_transaction_ends_by_itself(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    """After its time nothing is remembered for it, though nobody has ended it or uses it again."""
    accounts = tables["accounts"]
    with accounts.writer() as writer:
        (region, *_) = writer.claim_all()

        def wait(transaction: OpenTransaction) -> None:
            """Others write; the ticker comes before the time is over, and after that."""
            inside, start = transaction._joined[0].inside, seconds()
            assert inside.staged() is not None
            for passed, remembered in ((59.0, True), (61.0, False)):
                transaction._clock = lambda passed=passed: start + passed
                transaction._expire()
                writer.upsert({"id": list(range(20)), "n": [1] * 20})
                assert bool(region.recent._writes) == remembered
            assert inside.staged() is None

        mw.sql(ctx, "BEGIN")
        frame = mw.sql(ctx, "SELECT * FROM accounts, journal")
        mw.sql(ctx, "UPDATE accounts SET n = 0")
        transaction = session_of(ctx).slot.open
        assert isinstance(transaction, OpenTransaction)
        wait(transaction)
        for late in (frame.to_pylist, lambda: mw.sql(ctx, "COMMIT")):
            with pytest.raises(mw.ConflictError, match="took longer than"):
                late()
        with (
            pytest.raises(mw.ConflictError, match="took longer than"),
            mw.transaction(accounts) as tx,
        ):
            tx.upsert(accounts, {"id": [1], "n": [0]})
            wait(tx)
        with mw.transaction(accounts) as tx:
            tx.upsert(accounts, {"id": [1], "n": [0]})
            wait(tx)
            tx.rollback()
    assert {n for _, n in others(tables, "accounts")} == {1}


def test_a_transaction_in_use_is_not_ended_from_outside(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    transaction = OpenTransaction(list(tables.values()), timeout_s=1e-6)
    with transaction._lock:
        transaction._expire()
        assert not transaction._over
    eventually(lambda: transaction._over)  # the ticker has come


def test_changed_columns_are_named_as_the_session_and_the_transaction_have_them(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    changing = ["INSERT INTO journal VALUES (2, 'x')", "DELETE FROM journal WHERE text = 'x'"]
    statements = ["SELECT * FROM journal", "SELECT a.n FROM accounts a, journal", *changing]
    uri, old, new = tables["journal"].uri, ["id", "text"], ["id", "text", "at"]

    def errors(registered: list[str], read: list[str]) -> None:
        for statement in statements:
            with pytest.raises(mw.ReopenError) as raised:
                values(ctx, statement)
            parts = f"registered with {registered}", f"transaction reads it with {read}"
            assert all(part in str(raised.value) for part in parts), statement

    mw.sql(ctx, "BEGIN")
    values(ctx, "SELECT * FROM journal")
    mw.open_table(uri).add_columns({"at": "CAST(NULL AS BIGINT)"})
    mw.register(ctx, "journal", mw.open_table(uri))
    errors(new, old)
    mw.sql(ctx, "ROLLBACK")
    mw.sql(ctx, "BEGIN")
    assert values(ctx, "SELECT id, text, at FROM journal") == []
    mw.sql(ctx, "ROLLBACK")
    mw.open_table(uri).drop_columns(["text"])
    mw.sql(ctx, "BEGIN")
    errors(new, ["id", "at"])


def test_an_actor_is_recorded_for_each_statement(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    mw.sql(ctx, "INSERT INTO journal VALUES (1, 'nobody')")  # one region: a plain entry
    assert mw.history(*tables.values()).num_rows == 0
    for value in ("= 'ana'", "TO 'ana'", "= ana", "TO ana", '= "ana"'):
        mw.sql(ctx, "RESET memwal.actor")
        mw.sql(ctx, f"SET memwal.actor {value}")
        assert values(ctx, "SHOW memwal.actor") == [("memwal.actor", "ana")]
    statements = [
        "INSERT INTO journal VALUES (2, 'x'), (3, 'y')",
        "UPDATE accounts SET n = 0 WHERE id = 1",
        "DELETE FROM journal WHERE id = 1",
        "MERGE INTO journal USING (SELECT 4 AS id, 'z' AS text) s ON journal.id = s.id "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.text)",
    ]
    for statement in statements:
        mw.sql(ctx, statement)
    mw.sql(ctx, "RESET memwal.actor")
    mw.sql(ctx, "UPDATE accounts SET n = n + 1")  # several regions: a record without an actor
    recorded = mw.history(*tables.values()).to_pylist()[::-1]
    assert [row["operation"] for row in recorded] == [*statements, "UPDATE accounts SET n = n + 1"]
    assert [row["actor"] for row in recorded] == ["ana"] * 4 + [None]
    with pytest.raises(mw.InvalidCallError, match="the settings are"):
        mw.sql(ctx, "SET memwal.author = 'ana'")


def test_a_statement_too_large_for_a_record_of_its_actor_is_refused(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    rows = "SELECT value AS id, 'some text' AS text FROM generate_series(1, 500)"
    mw.sql(ctx, "SET memwal.actor = 'ana'")
    with tables["journal"].writer(memtable_bytes=1000):
        for statement in (
            f"INSERT INTO journal {rows}",
            f"INSERT INTO journal (id, text) {rows} ON CONFLICT DO NOTHING",
        ):
            with pytest.raises(mw.UnsupportedError, match="record of its actor 'ana'"):
                mw.sql(ctx, statement)
    assert others(tables, "journal") == []
    assert mw.history(tables["journal"]).num_rows == 0


def test_an_insert_over_several_regions_is_one_transaction(
    tables: dict[str, mw.Table], ctx: mw.SessionContext
) -> None:
    for run in (ctx.sql, datafusion.SessionContext.sql):
        text = "INSERT INTO accounts VALUES (11, 1), (12, 1), (13, 1), (14, 1)"
        before = mw.history(tables["accounts"]).num_rows
        (run(text) if run == ctx.sql else run(ctx, text)).collect()
        assert mw.history(tables["accounts"]).num_rows == before + 1
