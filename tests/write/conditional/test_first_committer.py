"""Others come between the reading and the writing of a change: the same table of cases for the
three ways in, a call of a writer, a statement and a transaction.

Each adds 10 to the rows (1, 1) and (1, 2), whose region is that of r = 1. What others do before it
commits is a conflict or is not: a call and a statement read again then, a transaction raises and is
run again. In the end every way has the rows of the others' change and its own, in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.write.statement import Isolation
from tests.each import each
from tests.model.process import as_another_process
from tests.write.conditional.committing import before_commits, comparisons

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [pa.field("r", pa.int64(), False), pa.field("id", pa.int64(), False), ("n", pa.int64())]
)
Key = tuple[int, int]
Rows = dict[Key, int]
START: Rows = {(1, 1): 1, (1, 2): 2, (1, 3): 3, (2, 1): 4}
ADDED = [{"r": 1, "id": 1, "n": 10}, {"r": 1, "id": 2, "n": 10}]
ADD = {"n": "t.n + s.n"}
UPDATE = "UPDATE t SET n = n + 10 WHERE r = 1 AND id < 3"


@dataclass
class Place:
    """A table, its writer and a session."""

    table: mw.Table
    writer: mw.TableWriter
    session: datafusion.SessionContext


def given(rows: Rows) -> list[dict[str, int]]:
    return [{"r": r, "id": key, "n": n} for (r, key), n in rows.items()]


Act = Callable[[Place], object]
Way = Callable[[Place, Isolation, Act, pytest.MonkeyPatch], bool]


def by_call(place: Place, isolation: Isolation, act: Act, patch: pytest.MonkeyPatch) -> bool:
    """Whether it has read again; so below."""
    compared = acting(place, act, patch)
    place.writer.upsert(ADDED, set=ADD, isolation=isolation)
    return len(compared) > 1


def by_statement(place: Place, isolation: Isolation, act: Act, patch: pytest.MonkeyPatch) -> bool:
    compared = acting(place, act, patch)
    mw.sql(place.session, f"SET memwal.isolation = '{isolation}'")
    mw.sql(place.session, UPDATE)
    return len(compared) > 1


def by_transaction(place: Place, isolation: Isolation, act: Act, _: pytest.MonkeyPatch) -> bool:
    tx = mw.transaction(place.table, isolation=isolation)
    tx.upsert(place.table, ADDED, set=ADD)
    act(place)
    try:
        tx.commit()
        return False
    except mw.ConflictError as error:
        assert error.table == place.table.uri
        assert "nothing was written, run it again" in str(error)
    with mw.transaction(place.table, isolation=isolation) as tx:
        tx.upsert(place.table, ADDED, set=ADD)
    return True


def acting(place: Place, act: Act, patch: pytest.MonkeyPatch) -> Sequence[object]:
    """Others act when it has computed its rows; gives what was compared with theirs so far."""
    acts = [act]
    before_commits(patch, lambda: acts and acts.pop()(place))
    return comparisons(patch)


WAYS = (by_call, by_statement, by_transaction)


def upsert(rows: Rows) -> Act:
    return lambda place: place.writer.upsert(given(rows))


def elsewhere(rows: Rows) -> Act:
    def act(place: Place) -> None:
        with as_another_process(), mw.open_table(place.table.uri).writer() as writer:
            writer.upsert(given(rows))

    return act


def by_transaction_of_others(rows: Rows) -> Act:
    def act(place: Place) -> None:
        with mw.transaction(place.table) as tx:
            tx.upsert(place.table, given(rows))

    return act


def flushed_elsewhere(rows: Rows) -> Act:
    def act(place: Place) -> None:
        with as_another_process(), mw.open_table(place.table.uri).writer() as writer:
            writer.upsert(given(rows))
            writer.flush()

    return act


def overwritten(place: Place) -> None:
    with mw.open_table(place.table.uri) as table:
        session = mw.SessionContext()
        mw.register(session, "t", table)
        mw.sql(session, "INSERT OVERWRITE t VALUES (1, 1, 70)")


def overwritten_elsewhere(place: Place) -> None:
    with as_another_process():
        overwritten(place)


def merge(place: Place) -> None:
    place.writer.flush()
    place.table.merge()


OVERWRITTEN: dict[Key, int | None] = {**dict.fromkeys(START), (1, 1): 70}
# What others do, the rows that it changes (None: deletes), and the ways that it conflicts with at
# snapshot isolation and at serializable: a serializable statement reads the whole table.
CASES: tuple[tuple[str, Act, dict[Key, int | None], tuple[Way, ...], tuple[Way, ...]], ...] = (
    ("nothing", lambda _: None, {}, (), ()),
    ("a flush", lambda place: place.writer.flush(), {}, (), ()),
    ("a merge", merge, {}, (), ()),
    ("a key", upsert({(1, 1): 70}), {(1, 1): 70}, WAYS, WAYS),
    ("both keys", upsert({(1, 2): 7, (1, 1): 70}), {(1, 1): 70, (1, 2): 7}, WAYS, WAYS),
    ("a key, deleted", lambda place: place.writer.delete([(1, 1)]), {(1, 1): None}, WAYS, WAYS),
    ("a key of its region", upsert({(1, 3): 70}), {(1, 3): 70}, (), WAYS),
    ("a key of another region", upsert({(2, 1): 70}), {(2, 1): 70}, (), (by_statement,)),
    ("a key of a new region", upsert({(3, 1): 70}), {(3, 1): 70}, (), (by_statement,)),
    ("a key, by a transaction", by_transaction_of_others({(1, 1): 7}), {(1, 1): 7}, WAYS, WAYS),
    ("a key, elsewhere", elsewhere({(1, 1): 70}), {(1, 1): 70}, WAYS, WAYS),
    ("its region, elsewhere", elsewhere({(1, 3): 70}), {(1, 3): 70}, WAYS[:2], WAYS),
    ("a region, elsewhere", elsewhere({(2, 1): 70}), {(2, 1): 70}, (), (by_statement,)),
    ("a key, flushed elsewhere", flushed_elsewhere({(1, 1): 70}), {(1, 1): 70}, WAYS, WAYS),
    ("all rows, overwritten", overwritten, OVERWRITTEN, WAYS, WAYS),
    ("all rows, overwritten elsewhere", overwritten_elsewhere, OVERWRITTEN, WAYS, WAYS),
)
ALL = [
    (way, isolation, case)
    for way in WAYS
    for isolation in ("snapshot", "serializable")
    for case in CASES
]


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "buffered"])
@each("way, isolation, case", ALL)
def test_the_first_committer_wins(
    fast_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    durable: bool,
    way: Way,
    isolation: Isolation,
    case: tuple[str, Act, dict[Key, int | None], tuple[Way, ...], tuple[Way, ...]],
) -> None:
    name, act, others, *conflicts = case
    if not durable and ("elsewhere" in name or "overwritten" in name):
        return  # that ends a buffered writer
    place = fast_folder / str(ALL.index((way, isolation, case))) / "t"
    keys, regions = ["r", "id"], "identity(r)"
    with mw.create_table(place, SCHEMA, keys, regions) as table:
        session = mw.SessionContext()
        mw.register(session, "t", table)
        with table.writer(durable=durable) as writer, monkeypatch.context() as patch:
            writer.upsert(given(START))
            writer.sync()
            found = way(Place(table, writer, session), isolation, act, patch)
        assert found is (way in conflicts[isolation == "serializable"]), name
        rows = {(row["r"], row["id"]): row["n"] for row in table.to_arrow().to_pylist()}
    after = {key: n for key, n in {**START, **others}.items() if n is not None}
    for key in ((1, 1), (1, 2)):
        if key in after or way is not by_statement:  # which does not insert it
            after[key] = after.get(key, 0) + 10
    assert rows == after, name
