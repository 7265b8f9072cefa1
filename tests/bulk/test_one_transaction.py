"""A batch whose regions all go through the WAL is one transaction."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.publish import Publisher
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.errors import MemWalError
from memwal_sql.state.batch_marks import BatchMark, transaction_id
from memwal_sql.storage.records.intent import TRANSACTION_ID
from memwal_sql.table import Table
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.model.process import Process
from tests.soak import IS_SOAK

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
KEYS = range(30)
SMALL, LARGE = StageLimits(generation=1 << 40), StageLimits(generation=1)
MARK = BatchMark("q", 0)


@pytest.fixture(autouse=True)
def _no_waiting(no_pauses: None) -> None:
    """Also where no sleep can be given."""


@pytest.fixture
def table(fast_folder: Path) -> Table:
    table = mw.create_table(fast_folder / "table", SCHEMA, "id", [mw.bucket("id", 3)])
    with table.writer() as writer:
        writer.upsert(rows("old"))
    return table


def rows(val: str) -> dict[str, Any]:
    return {"id": list(KEYS), "val": [val] * len(KEYS)}


def staged(table: Table, val: str, limits: StageLimits = SMALL) -> list[StagedTask]:
    stager = table.stager("job", RowForm(), limits)
    return [stager.stage(pa.table(rows(val)).to_batches())]


def values(table: Table) -> Counter[str]:
    return Counter(mw.open_table(table.uri).to_arrow(["val"])["val"].to_pylist())


def transactions(table: Table) -> list[str]:
    return mw.history(table)["id"].to_pylist()


class Watched:
    """A store whose every change is followed by a look."""

    def __init__(self, inner: Any, look: Any) -> None:
        self._inner, self._look = inner, look

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not name.startswith(("put", "delete", "move")):
            return value

        def change(*args: Any) -> Any:
            result = value(*args)
            self._look()
            return result

        return change


def test_a_reader_never_has_half_of_a_batch(table: Table) -> None:
    states: list[Counter[str]] = []
    reader = mw.open_table(table.uri)

    def look() -> None:
        states.append(Counter(reader.to_arrow(["val"])["val"].to_pylist()))

    publisher = opened_over(table.uri, lambda store: Watched(store, look)).publisher()
    for batch, val in enumerate(("a", "b")):  # the second one without a claim
        states.clear()
        before = values(table)
        assert publisher.publish(staged(table, val), BatchMark("q", batch)).regions == 3
        assert len(states) > 3
        assert {*map(str, states)} == {str(before), str(Counter({val: len(KEYS)}))}
    assert transactions(table) == ["q.1", "q.0"]
    changes = mw.open_table(table.uri).changes().read_all()
    assert set(changes["_transaction"].to_pylist()) == {None, "q.0", "q.1"}


def test_a_driver_that_ends_after_any_change_has_written_all_or_nothing(table: Table) -> None:
    """Its retry writes the batch once."""
    changes = range(1, 40, 1 if IS_SOAK else 3)
    for nth in changes:
        mark, val = BatchMark("q", nth), str(nth)
        state, process = values(table), Process(table.uri)
        publisher = process.table.publisher()
        process.switch.kill_at(nth, before=False)
        with suppress(OSError, MemWalError):
            publisher.publish(staged(table, val), mark)
        is_over = not process.switch._dead
        process.kill()
        check_retry(table, table.publisher(), mark, state)
        if is_over:
            break
    assert nth > 10
    assert len(transactions(table)) == changes.index(nth) + 1


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY, Kind.LANDED_EXISTS])
@pytest.mark.parametrize("same", [True, False], ids=["same publisher", "new publisher"])
def test_a_batch_is_completed_after_its_record_has_failed(
    table: Table, kind: Kind, same: bool
) -> None:
    fault, state = Fault("put_if_absent", kind, 1, "/transactions/"), values(table)
    faulty = opened_over(table.uri, lambda store: FaultyStore(store, [fault]))
    publisher = faulty.publisher()
    with suppress(MemWalError):
        publisher.publish(staged(table, "0"), MARK)
    assert fault.fired
    check_retry(table, publisher if same else table.publisher(), MARK, state)


def check_retry(table: Table, publisher: Publisher, mark: BatchMark, state: Counter[str]) -> None:
    """A batch is there or not, and after its retry it is there once."""
    val = str(mark.batch_id)
    assert values(table) in (state, Counter({val: len(KEYS)})), mark
    publisher.publish(staged(table, val), mark)
    assert values(table) == Counter({val: len(KEYS)})
    changes = mw.open_table(table.uri).changes().read_all()["val"].to_pylist()
    assert changes.count(val) == len(KEYS), mark
    assert mw.open_table(table.uri).check().ok


def test_a_batch_that_is_not_small_is_published_region_by_region(table: Table) -> None:
    table.publisher().publish(staged(table, "large", LARGE), MARK)
    assert values(table) == Counter({"large": len(KEYS)})
    assert transactions(table) == []


def test_one_region_takes_no_record(fast_folder: Path) -> None:
    table = mw.create_table(fast_folder / "one", SCHEMA, "id")
    for attempt in range(2):
        table.publisher().publish(staged(table, "a"), MARK)
        assert mw.open_table(table.uri).changes().read_all().num_rows == len(KEYS), attempt
        (marker,) = Path(table.uri).glob("_memwal_sql/batches/q/*")
        marker.unlink()  # the driver has died before it
    assert transactions(table) == []


def test_a_batch_without_a_mark_is_a_transaction_too(table: Table) -> None:
    for val in ("a", "b"):
        table.publisher().publish(staged(table, val))
        assert values(table) == Counter({val: len(KEYS)})
    assert len(transactions(table)) == 2


def test_the_ids_of_batches_are_ids_of_transactions() -> None:
    marks = [
        BatchMark(query, batch)
        for query in ("q", "x" * 44, "x" * 45, "y" * 128)
        for batch in (0, 10**18)
    ]
    ids = [transaction_id(mark) for mark in marks]
    assert ids[:2] == ["q.0", "q.1000000000000000000"]
    assert len(set(ids)) == len(ids)
    assert all(TRANSACTION_ID.fullmatch(name) for name in ids)
