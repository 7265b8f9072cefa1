"""Answers of live rows without a look: they are those of now, whatever happens in between."""

from __future__ import annotations

import datetime
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from threading import Event, Thread
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_native import void_questions
from memwal_sql.read.live.questions import questions_of
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.taken import Taken
from memwal_sql.session.provider import noted_scans
from memwal_sql.write.wal_writer import WalWriter
from tests.live.case import (
    ROWS,
    SCHEMA,
    Case,
    buffer,
    upsert,
    upsert_by_an_open_writer,
    upsert_by_another_handle,
    upsert_by_another_process,
)
from tests.live.test_image import KEYS

NAMES = {
    "int16": "Int16",
    "uint16": "UInt16",
    "int64": "Int64",
    "timestamp": "Timestamp(Microsecond, None)",
}


def collect(case: Case) -> None:
    """Neither the next manifest nor the last one is there afterwards."""
    for _ in range(14):
        with case.other.writer() as writer:
            writer.upsert({"id": [3], "v": [7]})
            writer.flush()
        case.other.merge()
    case.other.collect_garbage(older_than=datetime.timedelta(0))


@pytest.mark.parametrize(
    "change",
    [
        *(upsert, upsert_by_an_open_writer, upsert_by_another_handle, upsert_by_another_process),
        *(buffer, collect),
    ],
)
def test_what_was_written_is_seen_at_once(case: Case, change: Callable[[Case], None]) -> None:
    def got(key: int) -> int:
        (value,) = case.table.get([key])["v"].to_pylist()
        return int(value)

    for read in (case.value, got):
        assert case.is_quick()
        change(case)
        assert read(3) == 7
        assert case.total() == ROWS + 6
        case.upsert([3], 1)
        assert case.total() == ROWS


def test_looks_after_which_there_may_be_more_leave_no_questions(case: Case) -> None:
    collector = case.table.collector
    closed = collector._closed(collector.base_for("strong"), ())
    assert case.table._image is not None
    live, read = case.table._image.of(closed, lambda: closed), closed.read
    assert live is not None
    assert isinstance(live.state, Taken)
    taken = live.state
    (number, region), *_ = taken.regions.items()
    loud = replace(taken, regions={**taken.regions, number: replace(region, is_quiet=False)})
    asked = partial(questions_of, case.table.context, case.table.tracker)
    assert asked(read, taken) is not None
    assert asked(read, loud) is None
    assert asked(read, replace(taken, version=taken.version + 1)) is None
    for other in (replace(read, pruned=1), replace(read, open_of=None)):
        assert asked(other, taken) is None
    assert asked(replace(read, regions=read.regions[:1]), taken) is None


def test_rows_of_new_regions_are_seen(uri: str) -> None:
    with Live.set(enabled=1, least_rows=0, waited=1):
        case = Case(uri, regions=128)
        for key in range(1000, 1020):
            before = case.total()
            assert case.is_quick()
            case.upsert([key], 5)
            assert case.total() == before + 5


def test_acknowledged_rows_are_never_missing_beside_other_queries(case: Case) -> None:
    ended = Event()

    def ask() -> None:
        while not ended.is_set():
            case.sql("SELECT id, v FROM t")

    threads = [Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        with case.table.writer() as writer:
            for value in range(60):
                writer.upsert({"id": [5, 6], "v": [value, value]})
                assert case.sql("SELECT DISTINCT v FROM t WHERE id IN (5, 6)") == [(value,)]
                assert case.table.get([5])["v"].to_pylist() == [value]
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_an_entry_that_others_may_have_seen_is_waited_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed, go_on, answers = Event(), Event(), list[int | None]()
    append = WalWriter.append

    def slowly(self: WalWriter, *args: Any, **named: Any) -> int:
        position = append(self, *args, **named)
        landed.set()
        go_on.wait()
        return position

    with case.table.writer() as writer:
        writer.upsert({"id": [4], "v": [2]})
        assert case.total() == case.total() == ROWS + 1
        monkeypatch.setattr(WalWriter, "append", slowly)
        writing = Thread(target=writer.upsert, args=({"id": [3], "v": [7]},))
        writing.start()
        landed.wait()
        asking = Thread(target=lambda: answers.append(case.value(3)))
        asking.start()
        asking.join(0.1)  # it would have answered by now
        go_on.set()
        asking.join()
        writing.join()
    assert answers == [7]


def test_sessions_with_a_transaction_see_it(case: Case) -> None:
    other = mw.SessionContext()
    mw.register(other, "t", case.table)
    assert case.is_quick()
    mw.sql(case.ctx, "BEGIN")
    mw.sql(case.ctx, "UPDATE t SET v = 7 WHERE id = 3")
    assert case.value(3) == 7
    assert not case.is_quick()
    assert other.sql("SELECT sum(v) AS s FROM t").to_pydict() == {"s": [ROWS]}
    mw.sql(case.ctx, "ROLLBACK")
    assert case.value(3) == 1
    assert case.is_quick()
    with mw.transaction(case.table) as transaction:
        transaction.upsert(case.table, {"id": [3], "v": [8]})
        assert transaction.table(case.table).get([3])["v"].to_pylist() == [8]
        assert case.table.get([3])["v"].to_pylist() == [1]


def test_transactions_are_whole(case: Case) -> None:
    ended = Event()

    def transfer() -> None:
        for amount in range(15):
            with mw.transaction(case.table) as transaction:
                values = [1 + amount, 1 - amount] * 2
                transaction.upsert(case.table, {"id": [0, 1, 2, 3], "v": values})
        ended.set()

    thread = Thread(target=transfer)
    thread.start()
    while not ended.is_set():
        assert case.total() == ROWS
    thread.join()
    assert case.total() == ROWS


def test_no_condition_is_lost_between_an_offer_and_a_scan(case: Case) -> None:
    """Each may go either way."""
    queries = {
        "SELECT count(*) AS c FROM t WHERE v > 1": 0,
        "SELECT count(*) AS c FROM t WHERE id < 11": 11,
        "SELECT count(*) AS c FROM t WHERE id IN (3, 5, 99) AND v = 1": 2,
        "SELECT count(*) AS c FROM (SELECT * FROM t WHERE id > 30 LIMIT 4)": 4,
        "SELECT count(*) AS c FROM t WHERE abs(v) = 1 AND id = 7": 1,
    }
    ended = Event()

    def flip() -> None:
        while not ended.is_set():
            void_questions()

    thread = Thread(target=flip)
    thread.start()
    try:
        for _ in range(25):
            for query, expected in queries.items():
                assert case.sql(query) == [(expected,)], query
    finally:
        ended.set()
        thread.join()


def is_left_to_the_scan(ctx: datafusion.SessionContext, condition: str) -> bool:
    plan = repr(ctx.sql(f"SELECT v FROM t WHERE {condition}").optimized_logical_plan())
    return "Filter(" not in plan and ("filters: [B" in plan or "filters: [I" in plan)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_live_rows_promise_no_condition_that_others_would_not_apply(uri: str, kind: str) -> None:
    schema = pa.schema([pa.field("id", getattr(pa, kind)(), nullable=False), SCHEMA.field("v")])
    most = 2 ** (int(kind.strip("uint")) - (kind[0] == "i")) - 1
    least = -most - 1 if kind[0] == "i" else 0
    table = mw.create_table(uri, schema, "id", regions=[mw.bucket("id", 2)])
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    with table.writer() as writer:
        writer.upsert([{"id": key, "v": 1} for key in {least, 0, 1, most}])
    values = ["0", "1", str(least), str(most), "NULL", "1.5", str(most + 1), "'1'"]
    conditions = [f"id {op} {value}" for op in ("=", "<", ">=", "<>") for value in values]
    conditions += [
        "id IN (0, 1, 2, 3, NULL)",
        "id IN (1, 2, 3, 4, NULL)",
        "id IN (0, 5) OR id = 1",
        f"id BETWEEN 1 AND {most}",
        f"id IN (1, {least})",
        f"id = {least} OR id = 2",
    ]
    conditions += ["id = 1 AND v = 2", "NOT id = 1", " OR ".join(f"id = {n}" for n in range(100))]
    general = {one: is_left_to_the_scan(ctx, one) for one in conditions}
    expected = {one: answered(ctx, one) for one in conditions}
    with Live.set(enabled=1, least_rows=0, waited=1):
        for _ in range(2):
            ctx.sql("SELECT * FROM t").to_arrow_table()
        live = {one: is_left_to_the_scan(ctx, one) for one in conditions}
        assert [one for one in conditions if live[one] and not general[one]] == []
        assert sum(live.values()) > 10
        for condition in conditions:
            assert answered(ctx, condition) == expected[condition]


@pytest.mark.parametrize("is_whole", [True, False])
def test_conditions_of_all_kinds_keep_the_rows_of_the_general_path(
    uri: str, is_whole: bool
) -> None:
    """Live rows say which ones they apply if they have all columns, and else Python does."""
    fields = [*SCHEMA, pa.field("half", pa.float16()), pa.field("text", pa.string())]
    if not is_whole:
        fields.append(pa.field("vector", pa.list_(pa.float32(), 2)))
    schema = pa.schema(fields)
    ids = range(50)
    columns = {
        "id": ids,
        "v": [None if n % 7 == 0 else n % 5 for n in ids],
        "half": pa.array([n / 2 for n in ids], pa.float32()).cast(pa.float16()),
        "text": [f"{n}%" for n in ids],
        "vector": [[1.0, 2.0]] * 50,
    }
    rows = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    table = mw.create_table(uri, schema, "id")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    with table.writer() as writer:
        writer.upsert(rows)
    conditions = ["half <= 20", "half > 15.2 OR half <> 24", "half IN (1, 2.5)", "v + 1 > 3"]
    conditions += [
        "v IS DISTINCT FROM 3",
        "NOT v > 3",
        "v IN (1, NULL)",
        "text LIKE '1%' AND v < 3",
    ]
    conditions += ["CAST(v AS VARCHAR) LIKE '1%'", "10 / (v + 1) > 2 AND v <> 0", "v IS NULL"]
    conditions += ["abs(v) = 1 AND half < 9", "id > 3 AND id < 40 AND half < 9", "id = 4 OR v = 1"]
    conditions += ["id IN (4, 5, 6) AND half < 3", "id = 7 AND v <> 2"]
    conditions.append("id > 40 AND id < 45 AND 10 / v > 2")  # 0 only where ids rule it out
    query = "SELECT id, text FROM t WHERE {} ORDER BY id"
    expected = {one: ctx.sql(query.format(one)).to_arrow_table() for one in conditions}
    with Live.set(enabled=1, least_rows=0, waited=1):
        for _ in range(3):
            ctx.sql("SELECT id, v, half, text FROM t").to_arrow_table()
        assert table.answers is not None
        before = table.answers.count
        for condition in conditions:
            assert ctx.sql(query.format(condition)).to_arrow_table() == expected[condition], (
                condition
            )
        assert table.answers.count >= before + 5


def answered(ctx: datafusion.SessionContext, condition: str) -> list[Any]:
    try:
        rows = ctx.sql(f"SELECT * FROM t WHERE {condition}").to_arrow_table()
    except Exception as error:
        return [type(error)]
    return sorted(map(repr, rows.to_pylist()))


@pytest.mark.parametrize("number", range(len(KEYS)), ids=[str(kinds) for kinds, _ in KEYS])
def test_keys_of_every_type_are_found(uri: str, number: int) -> None:
    kinds, key = KEYS[number]
    fields = [pa.field(f"k{place}", kind, nullable=False) for place, kind in enumerate(kinds)]
    schema = pa.schema([*fields, SCHEMA.field("v")])
    names = schema.names[:-1]
    keys = list(dict.fromkeys(key(number) for number in range(20)))
    columns = [*map(list, zip(*keys, strict=True)), list(range(len(keys)))]
    rows = pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)
    table = mw.create_table(uri, schema, names)
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    with table.writer() as writer:
        writer.upsert(rows)
    chosen = rows.slice(1, 3)
    expected = table.get(chosen.select(names)).to_pylist()
    with Live.set(enabled=1, least_rows=0, waited=1):
        for _ in range(2):
            ctx.sql("SELECT * FROM t").to_arrow_table()
        assert table.answers is not None
        before = table.answers.count
        got = table.get(pa.concat_tables([chosen, chosen]).select(names))
        assert got.to_pylist() == expected
        assert got.schema == schema
        assert table.get(keys[0]).to_pylist() == rows.slice(0, 1).to_pylist()
        assert table.answers.count == before + 2
        literals = [pa.array([row], kinds[0])[0] for row in columns[0][1:3]]
        for value in literals:
            shown = ctx.sql("SELECT * FROM t WHERE k0 = $x", param_values={"x": value})
            want = [row for row in rows.to_pylist() if row["k0"] == value.as_py()]
            assert sorted(map(repr, shown.to_arrow_table().to_pylist())) == sorted(map(repr, want))


@pytest.mark.parametrize("kind", ["int16", "uint16", "int64", "timestamp"])
def test_ranges_of_keys_have_the_rows_of_a_dict(uri: str, kind: str) -> None:
    """More rows than a block has, some of which are deleted and come again elsewhere."""
    of_type = pa.timestamp("us") if kind == "timestamp" else getattr(pa, kind)()
    schema = pa.schema([pa.field("id", of_type, nullable=False), SCHEMA.field("v")])
    least = 0 if kind == "uint16" else -6000
    random = Random(7)
    table = mw.create_table(uri, schema, "id", regions=[mw.bucket("id", 2)])
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    rows = dict.fromkeys(range(least, least + 12000), 1)

    def batch(some: dict[int, int]) -> pa.Table:
        keys = pa.array(some, pa.int64()).cast(of_type)
        return pa.table({"id": keys, "v": list(some.values())}, schema=schema)

    with Live.set(enabled=1, least_rows=0, waited=1), table.writer() as writer:
        writer.upsert(batch(rows))
        for value in range(2, 8):
            for _ in range(2):
                ctx.sql("SELECT * FROM t").to_arrow_table()
            low, high = sorted(random.choices(range(least - 99, least + 12_200), k=2))
            low = max(low, least)
            texts = (
                f"arrow_cast(arrow_cast({bound}, 'Int64'), '{NAMES[kind]}')"
                for bound in (low, high)
            )
            query = (
                "SELECT v, count(*) AS c FROM t WHERE id >= {} AND id < {} GROUP BY v ORDER BY v"
            )
            counts = Counter(value for key, value in rows.items() if low <= key < high)
            found = ctx.sql(query.format(*texts)).to_pydict()
            assert dict(zip(found["v"], found["c"], strict=True)) == counts
            gone = random.sample(sorted(rows), 50)
            writer.delete(batch(dict.fromkeys(gone, 0)).select(["id"]))
            new = dict.fromkeys(
                [*gone[:20], *(least + 12_000 + 9 * value + n for n in range(9))], value
            )
            writer.upsert(batch(new))
            rows = {key: old for key, old in rows.items() if key not in gone} | new


def test_keys_given_as_a_stream_are_read_once(case: Case) -> None:
    keys = pa.table({"id": [3, 4]})
    for is_live in (True, False):
        with Live.set(enabled=int(is_live)):
            stream = pa.RecordBatchReader.from_batches(keys.schema, keys.to_batches())
            assert case.table.get(stream)["id"].to_pylist() == [3, 4]
            assert case.table.get(key for key in (3, 4))["id"].to_pylist() == [3, 4]


def test_a_table_that_is_gone_or_another_one_has_no_answers(case: Case) -> None:
    assert case.is_quick()
    os.rename(case.table.uri, f"{case.table.uri}_moved")
    with pytest.raises(Exception, match="gone"):
        case.total()
    with pytest.raises(mw.MemWalError, match="gone"):
        case.table.get([3])
    os.rename(f"{case.table.uri}_moved", case.table.uri)
    assert case.total() == ROWS
    assert case.is_quick()
    shutil.rmtree(case.table.uri)
    Case(case.table.uri).upsert([3], 9)
    with pytest.raises(Exception, match="another table"):
        case.total()
    with pytest.raises(mw.ReopenError, match="another table"):
        case.table.get([3])


@pytest.mark.filterwarnings("ignore::memwal_sql.errors.UnrecordedVersionWarning")
def test_other_levels_other_columns_and_the_past_are_not_answered(case: Case) -> None:
    assert case.table.answers is not None
    for level in ("manifest", "eventual"):
        mw.register(case.ctx, level, case.table, level)
    mw.register(case.ctx, "past", case.table.as_of(case.table.version))
    case.upsert([3], 7)
    assert case.total() == ROWS + 6
    before = case.table.answers.count
    assert case.is_quick()
    for name in ("manifest", "eventual", "past"):
        assert case.sql(f"SELECT sum(v) AS s FROM {name}") in ([(ROWS,)], [(ROWS + 6,)])
    with noted_scans() as scanned:
        assert case.total() == ROWS + 6
    assert len(scanned) == 1
    assert case.table.answers.count == before + 1
    case.other.add_columns({"more": "CAST(2 AS BIGINT)"})
    assert case.sql("SELECT sum(v) AS s FROM t") == [(ROWS + 6,)]


# Lance warns of every fork of a process that has used it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_fork_has_no_answers_of_its_parent(case: Case) -> None:
    assert case.table.answers is not None
    assert case.table.answers.are_likely
    child = os.fork()
    if not child:
        is_right = not case.table.answers.are_likely and case.table.get([3]).num_rows == 1
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert case.table.answers.are_likely
