"""Staged rows and the rows that the table has: what replaces them, and what is kept of them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk import winners as staged_winners
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.bulk.stored import StoredLimits, StoredRows
from memwal_sql.errors import FencedError, InvalidCallError
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.table import Table
from tests.model.writing import merge_rows, upsert_rows

SCHEMA = pa.schema({"id": pa.int64(), "at": pa.int64(), "val": pa.string()})
LARGE, SMALL = StageLimits(generation=1), StageLimits(generation=1 << 40, inline=0)
LIMITS = {"generations": LARGE, "files": SMALL, "messages": StageLimits()}


@pytest.fixture
def table(fast_folder: Path) -> Table:
    """The keys 0 to 9 in the base, 10 to 19 in generations and 20 to 29 in logs; `at` is 5."""
    table = mw.create_table(fast_folder / "table", SCHEMA, "id", [mw.bucket("id", 3)])
    merge_rows(table, rows(range(10), 5, "old"))
    upsert_rows(table, rows(range(10, 20), 5, "old"))
    table.flush()
    upsert_rows(table, rows(range(20, 30), 5, "old"))
    return table


def rows(keys: Any, at: int | None, val: str, **more: Any) -> dict[str, Any]:
    keys = list(keys)
    columns = {"at": at, "val": val, **more}
    return {"id": keys} | {name: [value] * len(keys) for name, value in columns.items()}


def stage(table: Table, form: RowForm, limits: StageLimits, columns: dict[str, Any]) -> StagedTask:
    """What a task would send to the driver."""
    given = pa.table(columns, schema=pa.schema([_field(name, columns[name]) for name in columns]))
    stager = table.stager("job", form, limits)
    return pickle.loads(pickle.dumps(stager.stage(given.to_batches(max_chunksize=7))))


def _field(name: str, values: list[Any]) -> pa.Field:
    return SCHEMA.field(name) if name in SCHEMA.names else pa.field(name, pa.array(values).type)


def found(table: Table) -> dict[int, Any]:
    """The rows by key, without it."""
    read = mw.open_table(table.uri).to_arrow()
    result = {row.pop("id"): tuple(row.values()) for row in read.to_pylist()}
    assert len(result) == read.num_rows, "a key came twice"
    return result


FORMS = {
    "when": RowForm(when="t.at < s.at"),
    "when, by a row's own words": RowForm(when='(t."at" - s.at) < 0 AND t IS DISTINCT FROM s'),
    "orderBy a stored column": RowForm(order_by="at"),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_a_late_row_does_not_replace_a_newer_one(
    table: Table, form: RowForm, limits: StageLimits
) -> None:
    """Wherever that is, and however the rows are published."""
    before = found(table)
    newer = stage(table, form, limits, rows(range(3, 33, 3), 7, "newer"))
    late = stage(table, form, limits, rows(range(1, 34, 3), 3, "late"))
    with StoredLimits.set(keys=4):
        result = table.publisher().publish([newer, late])
    assert (result.rows, result.skipped) == (11, 10)
    written = dict.fromkeys(range(3, 33, 3), (7, "newer"))
    late_but_new = {key: (3, "late") for key in range(1, 34, 3) if key not in before}
    assert found(table) == before | written | late_but_new


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_a_delete_is_compared_by_what_it_carries(table: Table, limits: StageLimits) -> None:
    before = found(table)
    form = RowForm(delete_column="gone", order_by="at")
    tasks = [
        stage(table, form, limits, rows([1, 11, 21, 41], 3, "", gone=True)),
        stage(table, form, limits, rows([2, 12, 22, 42], 8, "", gone=True)),
        stage(table, form, limits, rows([3, 13, 23, 43], 8, "new", gone=False)),
    ]
    table.publisher().publish(tasks)
    expected = {key: row for key, row in before.items() if key not in (2, 12, 22)}
    assert found(table) == expected | dict.fromkeys([3, 13, 23, 43], (8, "new"))
    form = RowForm(deletes=True, when="t.at < s.at")
    table.publisher().publish([stage(table, form, limits, {"id": [4, 14], "at": [5, 6]})])
    assert sorted(before.keys() - found(table).keys()) == [2, 12, 14, 22]


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_equal_and_unknown_orders_are_replaced(table: Table, limits: StageLimits) -> None:
    """So that a batch that runs again changes nothing."""
    upsert_rows(table, {"id": [1], "at": pa.nulls(1, pa.int64()), "val": ["old"]})
    form = RowForm(order_by="at")
    table.publisher().publish([stage(table, form, limits, rows([1, 2], 5, "again"))])
    assert {key: found(table)[key] for key in (1, 2)} == dict.fromkeys([1, 2], (5, "again"))
    always = RowForm(order_by="at", when="true")
    with patch.object(StoredRows, "compared", side_effect=AssertionError("nothing to look up")):
        table.publisher().publish([stage(table, always, limits, rows([2], 1, "corrected"))])
    assert found(table)[2] == (1, "corrected")


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_who_writes_between_the_comparison_and_the_rows_fences_the_batch(
    table: Table, limits: StageLimits
) -> None:
    """It compares again when it runs again, and knows what it has written."""
    publisher, mark = table.publisher(), BatchMark("q", 0)
    compared = StoredRows.compared
    form = RowForm(order_by="at")
    staged = lambda: [stage(table, form, limits, rows(range(6), 7, "batch"))]  # noqa: E731

    def overtaken(self: StoredRows, keys: pa.Table, form: RowForm) -> Any:
        result = compared(self, keys, form)
        if 3 in keys["id"].to_pylist():
            upsert_rows(table, rows([3], 9, "theirs"))
        return result

    with patch.object(StoredRows, "compared", overtaken), pytest.raises(FencedError):
        publisher.publish(staged(), mark)
    table.publisher().publish(staged(), mark)
    now = found(table)
    assert now[3] == (9, "theirs")
    assert [now[key] for key in (0, 1, 2, 4, 5)] == [(7, "batch")] * 5
    upsert_rows(table, rows([1], 1, "older, since"))
    assert table.publisher().publish(staged(), mark).rows == 0
    assert found(table)[1] == (1, "older, since")


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("missing", ["keep", "null"])
def test_a_batch_that_lacks_a_column(table: Table, limits: StageLimits, missing: str) -> None:
    """Also one that was added after it was staged."""
    form, before = RowForm(missing=missing), found(table)
    staged = [stage(table, form, limits, {"id": [1, 11, 21, 31], "val": ["new"] * 4})]
    table.add_columns([pa.field("more", pa.list_(pa.string()))])
    table.refresh()
    with table.writer() as writer:
        keys = [0, 1, 11, 21]
        writer.upsert({"id": keys, "more": [[f"m{key}"] for key in keys]})
        writer.upsert({"id": [2, 12], "at": [6, 6]})
    table.set_default("at", 77)
    with StoredLimits.set(keys=1):
        table.publisher().publish(staged)
    kept = missing == "keep"
    expected = {key: (*row, None) for key, row in before.items()}
    expected[0] = (5, "old", ["m0"])
    expected |= dict.fromkeys([2, 12], (6, "old", None))
    for key in (1, 11, 21):
        expected[key] = (5, "new", [f"m{key}"]) if kept else (None, "new", None)
    expected[31] = (77 if kept else None, "new", None)
    assert found(table) == expected


@pytest.mark.parametrize("form", [RowForm(order_by="at"), RowForm(missing="keep")])
def test_keys_of_a_small_batch_are_looked_up_together(table: Table, form: RowForm) -> None:
    """Of all regions and tasks."""
    publisher, before = table.publisher(), found(table)
    asked: list[int] = []
    get = publisher._get

    def counted(keys: pa.Table, columns: Any) -> pa.Table:
        asked.append(keys.num_rows)
        return get(keys, columns)

    publisher._get = counted
    tasks = [{"id": [1, 11, 40], "at": [7] * 3}, {"id": [2, 22], "at": [7] * 2}]
    for columns in tasks if form.order_by else ():
        columns["val"] = ["new"] * len(columns["id"])
    publisher.publish([stage(table, form, StageLimits(), columns) for columns in tasks])
    assert asked == [5]
    val = "new" if form.order_by else "old"
    expected = before | dict.fromkeys([1, 2, 11, 22], (7, val))
    assert found(table) == expected | {40: (7, val if form.order_by else None)}


def test_large_parts_of_new_keys_stay_as_they_were_staged(table: Table) -> None:
    """The driver reads their keys only."""
    form = RowForm(missing="keep", order_by="at")
    staged = stage(table, form, LARGE, {"id": list(range(100, 200)), "at": [1] * 100})
    folders = [piece.folder for piece in staged.pieces]
    with LogLimits.set(rows=1):
        table.publisher().publish([staged])
    left = [file for name in folders for file in Path(table.uri, str(name)).glob("**/*.lance")]
    assert len(folders) == 3 and not left
    assert found(table)[100] == (1, None)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_same_key_twice_needs_an_order_wherever_the_rows_are(
    table: Table, limits: StageLimits, tasks: int
) -> None:
    before = found(table)

    def publish(first: int, second: int, **form: Any) -> None:
        parts = [rows([1, 50], first, "first"), rows([1, 51], second, "second")]
        if tasks == 1:
            parts = [{name: parts[0][name] + parts[1][name] for name in parts[0]}]
        publisher = table.publisher()
        publisher.publish([stage(table, RowForm(**form), limits, part) for part in parts])

    for form in ({}, {"duplicates": "last"}, {"order_by": "at"}):
        if tasks == 1 and "duplicates" in form:
            continue
        message = r"of the key {'id': 1}.*orderBy"
        with pytest.raises(InvalidCallError, match=message):
            publish(7, 7, **form)
    assert found(table) == before
    publish(9, 8, order_by="at")
    assert found(table)[1] == (9, "first")
    if tasks == 1:
        for order in (None, "at"):
            publish(9, 9, duplicates="last", order_by=order)
            assert found(table)[1] == (9, "second")


def test_parts_of_one_task_are_in_its_order(table: Table) -> None:
    """Small ones before a large one of the same region, and behind it."""
    limits = StageLimits(joined=1, buffered=1, generation=300)
    columns = [rows([1], 5, "a"), rows(range(100), 5, "b"), rows([1, 2], 5, "c")]
    stager = table.stager("job", RowForm(duplicates="last"), limits)
    staged = stager.stage(pa.record_batch(part, schema=SCHEMA) for part in columns)
    assert {piece.large for piece in staged.pieces} == {False, True}
    table.publisher().publish([staged])
    now = found(table)
    assert [now[key][1] for key in (1, 2, 3)] == ["c", "c", "b"]


def test_what_a_task_sends_is_small_whatever_it_has_written(table: Table) -> None:
    """The driver holds the messages of all tasks."""
    few, many = rows(range(3), 5, "x"), rows(range(2_000), 5, "x" * 200)
    for columns, most in ((few, 6_000), (many, 3_000)):
        message = pickle.dumps(stage(table, RowForm(), StageLimits(), columns))
        assert len(message) < most
    files = [file for file in Path(table.uri).glob("_memwal_sql/staging/**/*") if file.is_file()]
    assert len(files) == 1  # of all regions


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_duplicates_are_found_by_keys_and_order_alone(table: Table, limits: StageLimits) -> None:
    """A condition may name the whole given row, and the driver looks at all pieces at once."""
    form, winners = RowForm(order_by="at", when="t IS DISTINCT FROM s"), staged_winners.winners
    columns: list[list[str]] = []

    def seen(pieces: Any, *more: Any) -> Any:
        columns.extend(piece.table.column_names for piece in pieces)
        return winners(pieces, *more)

    tasks = [stage(table, form, limits, rows(range(9), at, f"at {at}")) for at in (8, 7)]
    with patch.object(staged_winners, "winners", seen):
        table.publisher().publish(tasks)
    assert columns == [["id", "_order"]] * 6
    assert [found(table)[key] for key in range(9)] == [(8, "at 8")] * 9


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("missing", ["keep", "null"])
def test_rows_that_were_staged_before_their_order_was_stored_are_refused(
    table: Table, limits: StageLimits, missing: str
) -> None:
    """They would be compared by it if they were staged now. Other new columns, and an order that
    the condition replaces, change nothing."""
    columns = {"id": [1, 40], "val": ["late"] * 2, "seq": [1] * 2}
    forms = [RowForm(order_by="seq", missing=missing, when=when) for when in (None, "t.at < 9")]
    late, by_condition = (stage(table, form, limits, columns) for form in forms)
    table.add_columns([pa.field("more", pa.int64())])
    table.refresh()
    table.publisher().publish([late])
    table.add_columns([pa.field("seq", pa.int64())])
    table.refresh()
    upsert_rows(table, {"id": [1], "at": [5], "val": ["newer"], "more": [0], "seq": [2]})
    before = found(table)
    with pytest.raises(mw.ReopenError, match=r"'seq' .* was added.*run the job again"):
        table.publisher().publish([late])
    assert found(table) == before
    table.publisher().publish([by_condition])
    assert found(table)[1][1] == "late"
    table.publisher().publish([stage(table, forms[0], limits, columns)])
