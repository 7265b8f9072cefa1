"""Changes that a statement has computed elsewhere from rows that it read, as Spark's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.changes import DELETE, INSERT, UPDATE
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.bulk.unchanged import RowsRead
from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    KeysExistError,
    MemWalError,
    ReopenError,
    UnsupportedError,
)
from memwal_sql.table import Table
from tests.model.process import Process
from tests.soak import IS_SOAK, in_turns

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
STAGED = pa.schema(
    {"kind": pa.int8(), **dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), "key": pa.int64()}
)
# Its kind, and the new row or the key of the row that was read.
Change = tuple[int, int | None, str | None, int | None]
KEYS = range(12)
SMALL, LARGE = StageLimits(generation=1 << 40), StageLimits(generation=1)
START = dict.fromkeys(KEYS, "old")


@pytest.fixture(autouse=True)
def _no_waiting(no_pauses: None) -> None:
    """Also where no sleep can be given."""


@pytest.fixture
def uri(fast_folder: Path) -> str:
    return str(fast_folder / "table")


def new_table(uri: str) -> Table:
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 3)])
    put(table, START)
    return table


def put(table: Table, rows: dict[int, str]) -> None:
    with table.writer() as writer:
        writer.upsert({"id": list(rows), "val": list(rows.values())})


def rows(uri: str) -> dict[int, str]:
    with mw.open_table(uri) as table:
        found = table.to_arrow(SCHEMA.names)
        assert table.check().ok
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


def deleted(*keys: int) -> list[Change]:
    return [(DELETE, None, None, key) for key in keys]


def updated(*keys: int, to: str = "new") -> list[Change]:
    return [(UPDATE, key, to, key) for key in keys]


def inserted(*keys: int) -> list[Change]:
    return [(INSERT, key, "new", None) for key in keys]


def moved(*keys: int, by: int) -> list[Change]:
    return [(UPDATE, key + by, "new", key) for key in keys]


def staged(table: Table, *tasks: Sequence[Change], limits: StageLimits = SMALL) -> list[StagedTask]:
    """What the tasks with these changes have staged."""
    done = []
    for changes in tasks:
        columns = [list(column) for column in zip(*changes, strict=True)]
        batch = pa.record_batch(columns, schema=STAGED)
        done.append(table.stager("job", RowForm(changes=True), limits).stage([batch]))
    return done


def publish(table: Table, tasks: Sequence[StagedTask], pinned: Any) -> None:
    read = RowsRead(table.context, pinned, any(task.moves for task in tasks))
    table.publisher().publish(tasks, read=read, operation="MERGE")


# What tasks have changed, and the rows afterwards; or the error, and what it says.
ALONE: list[tuple[list[list[Change]], dict[int, str | None] | tuple[type[Exception], str]]] = [
    ([deleted(1, 2)], {1: None, 2: None}),
    ([updated(1), deleted(2), inserted(20)], {1: "new", 2: None, 20: "new"}),
    ([deleted(1, 2, 1), deleted(2)], {1: None, 2: None}),  # a MERGE with two source rows
    ([moved(*KEYS, by=1)], {0: None, **dict.fromkeys(range(1, 13), "new")}),
    ([moved(1, by=1), moved(2, by=-1)], {1: "new", 2: "new"}),
    ([moved(1, 2, by=100)], {1: None, 2: None, 101: "new", 102: "new"}),
    ([deleted(5), inserted(5)], {5: "new"}),
    ([updated(1, 1)], (InvalidCallError, r"changed more than once: \[1\]")),
    ([updated(1), updated(1)], (InvalidCallError, r"changed more than once: \[1\]")),
    ([updated(1), deleted(1)], (InvalidCallError, r"changed more than once: \[1\]")),
    ([inserted(20), inserted(20)], (InvalidCallError, r"get the same key, .*\[20\]")),
    ([moved(1, by=19), inserted(20)], (InvalidCallError, r"get the same key, .*\[20\]")),
    ([inserted(3)], (KeysExistError, r"have 1 of the keys .* \[3\]: nothing was written")),
    ([moved(1, by=1)], (KeysExistError, r"have 1 of the keys .* \[2\]")),
]


def test_changes_of_tasks_are_made_together_or_refused(uri: str) -> None:
    for limits in (SMALL, LARGE):
        for tasks, outcome in ALONE:
            expected: dict[int, str | None] = dict(START)
            with new_table(uri) as table:
                pinned, done = (
                    table.pin("strong", []),
                    partial(staged, table, *tasks, limits=limits),
                )
                if isinstance(outcome, dict) and (limits is SMALL or not done()[0].moves):
                    publish(table, done(), pinned)
                    expected |= outcome
                elif not isinstance(outcome, dict):
                    with pytest.raises(outcome[0], match=outcome[1]):
                        publish(table, done(), pinned)
            assert rows(uri) == {k: v for k, v in expected.items() if v}, (limits, tasks)
            mw.drop_table(uri)


def test_keys_that_change_by_more_than_a_transaction_holds_are_refused(uri: str) -> None:
    with new_table(uri) as table:
        tasks = staged(table, moved(*KEYS, by=100), limits=LARGE)
        with pytest.raises(UnsupportedError, match="too large for one transaction: nothing was"):
            publish(table, tasks, table.pin("strong", []))
    assert rows(uri) == START


def flush_and_merge(table: Table) -> None:
    with table.writer() as writer:
        writer.flush()
    table.merge()


def merge_other_value(table: Table) -> None:
    put(table, {2: "other"})
    flush_and_merge(table)


def delete(table: Table) -> None:
    with table.writer() as writer:
        writer.delete([2])


def replace_all(table: Table) -> None:
    table.replace_rows(pa.table({"id": [2, 3], "val": ["old", "other"]}, SCHEMA))


def add_column(table: Table) -> None:
    table.add_columns([pa.field("more", pa.int64())])


def replace_column(table: Table) -> None:
    table.drop_columns(["val"])
    table.add_columns([pa.field("val", pa.string())])


# What others do after the statement has read, and the error of one that updates 2 and inserts 20.
MEANWHILE: list[tuple[Callable[[Table], None], type[MemWalError] | None]] = [
    (lambda table: put(table, {1: "other", 9: "other", 40: "other"}), None),
    (lambda table: put(table, {2: "old"}), None),
    (flush_and_merge, None),
    (lambda table: put(table, {2: "other"}), ConflictError),
    (merge_other_value, ConflictError),
    (delete, ConflictError),
    (lambda table: put(table, {20: "other"}), ConflictError),
    (replace_all, None),  # by the same row
    (add_column, ReopenError),
    (replace_column, ReopenError),
]


def test_what_others_wrote_since_the_read_is_kept(uri: str) -> None:
    for number, (change, error) in enumerate(MEANWHILE):
        for is_flushed in in_turns([False, True], number, 2):
            with new_table(uri) as table:
                if is_flushed:
                    flush_and_merge(table)
                pinned = table.pin("strong", [])
                tasks = staged(table, updated(2), inserted(20))
                with mw.open_table(uri) as other:
                    change(other)
                others = rows(uri)
                if error is None:
                    publish(table, tasks, pinned)
                    others |= {2: "new", 20: "new"}
                else:
                    with pytest.raises(error, match="nothing was written"):
                        publish(table, tasks, pinned)
            assert rows(uri) == others, (number, is_flushed)
            mw.drop_table(uri)


def test_a_driver_that_ends_after_any_request_has_changed_all_or_nothing(uri: str) -> None:
    """Keys go to other regions: half of the changes would lose rows, or have them twice."""
    table = new_table(uri)
    keys = list(KEYS)
    for nth in range(1, 60, 1 if IS_SOAK else 4):
        process = Process(uri)
        pinned = process.table.pin("strong", [])
        tasks = staged(process.table, moved(*keys, by=1))
        before, after = set(keys), {key + 1 for key in keys}
        process.switch.kill_at(nth, before=False)
        with suppress(OSError, MemWalError):
            publish(process.table, tasks, pinned)
        is_over = not process.switch._dead
        process.kill()
        found = set(rows(uri))
        assert found in (before, after), (nth, found)
        keys = sorted(found)
        if is_over:
            break
    assert nth > 10
    assert set(rows(uri)) == after
    table.close()
