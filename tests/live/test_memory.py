"""When live rows are made, of what they are, and when they go: within the memory of the process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import STORE
from memwal_sql.read.live import load as loading
from memwal_sql.read.live.kept import COLUMNS, KEYS, LOG
from memwal_sql.read.live.load import load
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.state import LiveState
from tests.each import each
from tests.model.resident import another_store
from tests.soak import SOAK

NUMBERS = [f"n{number}" for number in range(4)]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *(pa.field(name, pa.int64()) for name in NUMBERS),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)
KINDS = (KEYS, COLUMNS, LOG)


def rows(ids: list[int], value: int = 0, text: str = "t") -> pa.Table:
    columns: dict[str, list[object]] = {"id": list(ids)}
    columns |= {name: [value + one for one in ids] for name in NUMBERS}
    columns |= {"text": [f"{text}{one}" for one in ids], "vector": [[1.0] * 4] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


def create(uri: str, count: int, text: str = "t") -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert(rows(list(range(count)), text=text))
    return table


def state(table: mw.Table) -> LiveState:
    assert table._image is not None
    return table._image.state()


def resident() -> dict[str, int]:
    """The bytes of the kinds of live rows."""
    kinds = STORE.kinds()
    return {kind: kinds[kind].bytes for kind in KINDS if kind in kinds and kinds[kind].entries}


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    with another_store(64 << 20):
        yield


def test_live_rows_are_made_once_queries_have_read_twice_their_bytes(uri: str) -> None:
    table = create(uri, 1000)
    begun: list[Callable[[], object]] = []
    with Live.set(enabled=1, least_rows=1000), background_by(begun.append):
        # Of 8 bytes a row and 16 for its key; so a query reads a third.
        for _ in range(5):
            table.to_arrow(["n0"])
            assert begun == []
        assert state(table).state == "none"
        table.to_arrow(["n0"])
        (build,) = begun
        table.to_arrow(["n0"])
        assert state(table).state == "loading"
        build()
        assert state(table).columns == ("id", "n0")
        table.to_arrow(["n0"])
        table.to_arrow(["n1"])
        assert len(begun) == 1
        table.to_arrow(["n1"])
        begun[1]()
        table.to_arrow(["n0", "n1"])
        assert state(table).columns == ("id", "n0", "n1")
        assert state(table).queries == {"live": 2, "general": 9}


def test_lookups_pay_less_and_look_at_one_region(uri: str) -> None:
    table = create(uri, 1000)
    begun: list[Callable[[], object]] = []
    with Live.set(enabled=1, least_rows=500, reads=100), background_by(begun.append):
        lookups = 0
        while not begun and lookups < 99:
            table.to_arrow(["n0"], filter="id = 7")
            lookups += 1
        assert 0.8 < lookups / (1000 * 32 * 100 / Admission.lookup) < 1.3
        (build,) = begun
        build()
        assert table.to_arrow(["n0"], filter="id = 7")["n0"].to_pylist() == [7]
        assert state(table).queries == {"live": 1, "general": lookups}
        assert state(table).rows == 1000


def test_a_small_table_and_one_that_takes_half_of_the_memory_have_no_live_rows(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1):
        for least, budget, reason in [(101, 64 << 20, "fewer than 101"), (1, 2000, "50%")]:
            with Live.set(least_rows=least):
                mw.configure(memory=budget)
                for _ in range(2):  # the first opens the files
                    table.to_arrow(["n0"])
                assert state(table).state == "none"
                assert reason in state(table).reason
                assert resident() == {}


def test_vectors_and_long_texts_are_not_kept(uri: str) -> None:
    table = create(uri, 100, text="long" * 70)
    with Live.set(enabled=1, waited=1, least_rows=0):
        for _ in range(3):
            assert table.to_arrow().sort_by("id") == rows(list(range(100)), text="long" * 70)
            now = state(table)
            assert (now.state, now.columns) == ("live", ("id", *NUMBERS))
            assert now.refused.keys() == {"text", "vector"}
        assert now.queries["live"] == 0
        table.to_arrow(["id", "n3"])
        assert state(table).queries["live"] == 1


def test_columns_that_queries_ask_for_later_are_loaded(uri: str) -> None:
    """Also what was written while they were not there."""
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0, checked=1), table.writer() as writer:
        for number, name in enumerate([*NUMBERS, "text"]):
            table.to_arrow([name])
            writer.upsert(rows([number, 200 + number], value=1000 * number))
            writer.delete([50 + number])
            expected = table.to_arrow(["id", name]).sort_by("id")
            assert name in state(table).columns
            with Live.set(enabled=0):
                assert table.to_arrow(["id", name]).sort_by("id") == expected
        of_live = state(table)
        assert sum(resident().values()) >= of_live.bytes


@pytest.mark.parametrize("seed", range(4 * SOAK))
def test_loads_and_writes_in_any_order_give_the_rows_of_a_dict(uri: str, seed: int) -> None:
    random, table = Random(seed), create(uri, 60)
    expected = {one: f"t{one}" for one in range(60)}
    begun: list[Callable[[], object]] = []
    with (
        Live.set(enabled=1, least_rows=0, reads=0, checked=1),
        background_by(begun.append),
        table.writer(memtable_rows=30) as writer,
    ):
        for step in range(40):
            match random.randrange(6):
                case 0 | 1:
                    ids = random.sample(range(90), random.randint(1, 9))
                    writer.upsert(rows(ids, text=f"{step} "))
                    expected |= {one: f"{step} {one}" for one in ids}
                case 2:
                    ids = random.sample(range(90), random.randint(1, 9))
                    writer.delete(ids)
                    expected = {one: text for one, text in expected.items() if one not in ids}
                case 3 if begun:
                    begun.pop(0)()
                case 4:
                    STORE.evict_where(COLUMNS, lambda key: key.detail == random.choice([1, 5]))
                case _:
                    got = table.to_arrow(["id", "text"]).to_pydict()
                    assert dict(zip(got["id"], got["text"], strict=True)) == expected
        assert state(table).queries["live"] + state(table).queries["general"] > 0


@pytest.mark.parametrize("seed", range(3 * SOAK))
def test_with_half_of_the_memory_that_they_need_live_rows_stay_within_it(
    uri: str, seed: int
) -> None:
    random, count, names = Random(seed), 3000, [f"n{number}" for number in range(20)]
    schema = pa.schema([SCHEMA.field("id"), *(pa.field(name, pa.int64()) for name in names)])

    def rows(ids: list[int], value: int) -> pa.Table:
        return pa.table([ids, *([one + value for one in ids] for _ in names)], schema=schema)

    table = mw.create_table(uri, schema, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert(rows(list(range(count)), 0))
    mw.configure(memory=count * (16 + 8 * len(names)) // 2)
    expected = dict.fromkeys(range(count), 0)
    with Live.set(enabled=1, least_rows=0, waited=1, budget=1.0), table.writer() as writer:
        seen = set[str]()
        for step in range(30):
            ids = random.sample(range(count), random.choice([1, 50, 500]))
            writer.upsert(rows(ids, step))
            expected |= dict.fromkeys(ids, step)
            name = random.choice(names)
            got = table.to_arrow(["id", name]).to_pydict()
            values = dict(zip(got["id"], got[name], strict=True))
            assert values == {one: one + value for one, value in expected.items()}
            assert STORE.nbytes <= STORE.max_bytes
            now = state(table)
            assert now.bytes <= sum(resident().values())
            seen.add(now.state)
        assert "live" in seen


def test_what_is_evicted_goes(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0):
        for _ in range(2):
            table.to_arrow(["n0", "n1"])
        STORE.evict_where(COLUMNS, lambda key: key.detail == 1)
        assert state(table).columns == ("id", "n1")
        STORE.evict_where(KEYS, lambda key: True)
        assert state(table).state == "none"
        assert "memory" in state(table).reason
        assert resident() == {}
        table.to_arrow(["n0"])
        mw.configure(memory=0)
        assert state(table).state == "none"


def test_rows_of_a_handle_that_is_gone_go(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0):
        table.to_arrow(["n0"])
        before = resident()
        assert before
        del table
        gc.collect()
        table = mw.open_table(uri)
        table.to_arrow(["n0"])
        assert resident() == before


def test_a_log_is_taken_in_before_it_grows_too_large(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0, log=20_000), table.writer() as writer:
        table.to_arrow(["n0", "text"])
        for step in range(20):
            writer.upsert(rows(list(range(50)), value=step))
            assert table.count_rows() == 100
            assert resident()[LOG] < 25_000
        assert table.to_arrow(["n0"])["n0"].to_pylist().count(19) == 1


def test_rows_are_read_again_if_many_have_changed_and_queries_ask(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0, few=10), table.writer() as writer:
        table.to_arrow(["n0"])
        writer.upsert(rows(list(range(25)), value=1))
        table.to_arrow(["n0"])
        assert state(table).state == "live"
        writer.upsert(rows(list(range(26)), value=2))
        with Live.set(waited=0, reads=1000):
            table.to_arrow(["n0"])
            assert state(table).state == "none"
            assert "26 rows were new" in state(table).reason
        table.to_arrow(["n0"])
        assert state(table).state == "live"


def test_rows_that_plain_lance_has_appended_again_are_not_kept(uri: str) -> None:
    table = create(uri, 10)
    table.flush()
    table.merge()
    lance.write_dataset(rows([3]), uri, mode="append")
    with Live.set(enabled=1, waited=1, least_rows=0):
        for _ in range(2):
            assert table.to_arrow(["id"])["id"].to_pylist().count(3) == 2
        assert "same key" in state(table).reason


def attempts(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes each time that rows are read for live rows, and whether all are."""
    noted: list[bool] = []

    def noting(*arguments: Any, is_new: bool) -> dict[int, str]:
        noted.append(is_new)
        return load(*arguments, is_new=is_new)

    monkeypatch.setattr(loading, "load", noting)
    return noted


def long_texts(uri: str) -> tuple[mw.Table, list[str]]:
    """A column of more than a quarter of the memory."""
    return create(uri, 4000, text="t" * 120), ["text"]


def keys_twice(uri: str) -> tuple[mw.Table, list[str]]:
    table = create(uri, 2000)
    table.flush()
    table.merge()
    lance.write_dataset(rows([3]), uri, mode="append")
    return table, ["n0"]


def long_keys(uri: str) -> tuple[mw.Table, list[str]]:
    """Keys of more than a quarter of the memory."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])
    table = mw.create_table(uri, schema, "id")
    with table.writer() as writer:
        writer.upsert({"id": [f"{one:0200d}" for one in range(3000)], "n": [1] * 3000})
    return table, ["n"]


@each("make", [long_texts, keys_twice, long_keys])
def test_what_does_not_fit_is_not_tried_at_every_turn(
    uri: str, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], tuple[mw.Table, list[str]]]
) -> None:
    STORE.max_bytes = 1_600_000
    noted = attempts(monkeypatch)
    table, columns = make(uri)
    with Live.set(enabled=1, least_rows=0), background_by(lambda work: work()):
        for _ in range(60):
            table.to_arrow(columns)
        assert 1 <= len(noted) <= 6
        live = state(table)
        assert live.reason or live.refused


def test_a_column_is_refused_for_rows_of_which_it_is_a_column(uri: str) -> None:
    """Not for those that are made once it is dropped, where another one may have its number."""
    with Live.set(enabled=1, least_rows=0, waited=1):
        table, _ = keys_twice(uri)
        table.to_arrow()
        assert "same key" in state(table).reason
        with table.writer() as writer:
            writer.delete([3])
            writer.flush()
        table.merge()
        table.drop_columns(["vector"])
        for _ in range(2):
            table.to_arrow()
        live = state(table)
        assert (live.state, live.refused, live.columns) == ("live", {}, tuple(table.schema.names))


def test_rows_that_are_made_while_they_are_switched_off_are_not_kept(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, least_rows=0, waited=1):

        def switched(*arguments: Any, is_new: bool) -> dict[int, str]:
            refused = load(*arguments, is_new=is_new)
            Live.enabled = 0
            return refused

        monkeypatch.setattr(loading, "load", switched)
        table.to_arrow(["n0"])
        assert resident() == {}


def test_a_query_after_many_versions_reads_the_files(uri: str) -> None:
    """It would have to read each version since."""
    table = create(uri, 100)
    with Live.set(enabled=1, least_rows=0, waited=1, versions=3):
        for versions, expected in ((3, "live"), (4, "none")):
            table.to_arrow(["n0"])
            before = lance.dataset(uri).version
            for value in range(versions):
                with table.writer() as writer:
                    writer.upsert(rows([1], value))
                table.snapshot_regions()
            assert lance.dataset(uri).version == before + versions
            with Live.set(waited=0, reads=1000):
                table.to_arrow(["n0"])
            assert state(table).state == expected
        assert "many base versions" in state(table).reason


def test_columns_that_are_live_leave_the_resident_columns(uri: str) -> None:
    table = create(uri, 2000)
    table.flush()
    table.merge()
    columns = lambda: {k.detail[0] for k in STORE.all_keys() if k.kind == "column"}  # noqa: E731
    with Live.set(enabled=0):
        for _ in range(3):
            table.to_arrow(["id", "n0", "n1"])
    with Live.set(enabled=1, waited=1, least_rows=0):
        before = columns()
        table.to_arrow(["n0"])
        assert len(before - columns()) == 2  # the key, too


def test_a_forked_child_makes_its_own(uri: str) -> None:
    table = create(uri, 100)
    with Live.set(enabled=1, waited=1, least_rows=0):
        table.to_arrow(["n0"])
        image = table._image
        assert image is not None
        with image._lock:  # as another thread had it at the fork
            image._pid += 1
            table.to_arrow(["n0"])
            assert state(table).queries == {"live": 0, "general": 1}
        table.to_arrow(["n0"])
        assert state(table).queries == {"live": 1, "general": 1}
