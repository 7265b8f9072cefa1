"""`apply(..., when=)` over feeds that come out of order, against a dict."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.int64()),
        pa.field("name", pa.string(), nullable=False),
    ]
)
NEWER = "t.at <= s.at"
Rows = dict[int, dict[str, Any]]


def applied(rows: Rows, change: dict[str, Any]) -> bool:
    """Apply a change to the rows as SQL would; whether its condition was true."""
    row = {name: value for name, value in change.items() if name != "_op"}
    there, at = rows.get(row["id"]), row.get("at")
    if there is not None and (at is None or there["at"] is None or there["at"] > at):
        return False
    if change["_op"] == "delete":
        rows.pop(row["id"], None)
    else:
        rows[row["id"]] = row
    return True


def feed(random: Random, count: int, deleted: list[str]) -> list[dict[str, Any]]:
    changes = []
    for _ in range(count):
        key, at = random.randrange(6), random.randrange(30)
        row = {"id": key, "at": at, "name": f"{key} {at} {random.random()}"}
        is_delete = random.random() < 0.3
        kept = {name: row[name] for name in deleted} if is_delete else row
        changes.append({**kept, "_op": "delete" if is_delete else "upsert"})
    return changes


def as_table(changes: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(changes, SCHEMA.append(pa.field("_op", pa.string())))


def as_dict(changes: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = [*SCHEMA.names, "_op"]
    return {name: [one.get(name) for one in changes] for name in names}


def as_messages(changes: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """Debezium's."""
    messages: list[dict[str, Any] | None] = []
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_op"}
        if change["_op"] == "delete":
            messages += [{"payload": {"before": row, "after": None, "op": "d"}}, None]
        else:
            messages.append({"payload": {"before": None, "after": row, "op": "u"}})
    return messages


@pytest.mark.parametrize("deleted", [["id"], ["id", "at"], SCHEMA.names], ids=" ".join)
def test_changes_out_of_order_leave_the_newest_rows(deleted: list[str], tmp_path: Path) -> None:
    random, expected = Random(len(deleted)), Rows()
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer(durable=False) as writer:
        for form in (list, as_table, as_dict, as_messages) * 2:
            changes = feed(random, 25, deleted)
            done = [applied(expected, one) for one in changes]
            result = writer.apply(form(changes), when=NEWER)
            assert result.skipped == done.count(False)
            found = {row["id"]: row for row in table.to_arrow().to_pylist()}
            assert found == expected
            if random.random() < 0.4:
                writer.flush()
                table.merge()
        assert writer.apply([], when=NEWER).rows == 0


def test_a_condition_that_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    row = {"id": 1, "at": 1, "name": "a"}
    with table.writer() as writer:
        writer.upsert([row])
        for changes, when, text in (
            ([{**row, "_op": "u"}], "t.a <= s.at", "t.a <= s.at"),
            ([{**row, "_op": "u"}, {"id": 1, "x": 2, "_op": "d"}], NEWER, "x"),
            ([{"id": 1, "at": 5, "_op": "u"}], NEWER, "name"),
            ([{"id": None, "_op": "d"}], NEWER, "id"),
        ):
            with pytest.raises(mw.InvalidCallError, match=text):
                writer.apply(changes, when=when)
        assert table.to_arrow().to_pylist() == [row]


NUMBERS = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("m", pa.int64())])


@each(
    "when, values, expected",
    [
        ("t IS DISTINCT FROM s", None, [(1, 1, 7), (2, 1, 1)]),
        ("s <> T", None, [(1, 1, 7), (2, 1, 1)]),
        ("t['m'] < s['m']", None, [(1, 1, 7), (2, 1, 1)]),
        ("get_field(t, 'm') < s.m", None, [(1, 1, 7), (2, 1, 1)]),
        (None, {"m": "t['m'] + s['m']"}, [(1, 1, 8), (2, 1, 2)]),
        ("t.m < s.m", {"n": "get_field(t, 'm') + s.m"}, [(1, 8, 7), (2, 1, 1)]),
    ],
)
def test_an_expression_may_use_rows_as_a_whole(
    uri: str, when: str | None, values: dict[str, str] | None, expected: list[tuple[int, int, int]]
) -> None:
    """Not only the columns that it names; a row of other columns would be compared by its key."""
    table = mw.create_table(uri, NUMBERS, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "n": [1, 1], "m": [1, 1]})
        result = writer.upsert({"id": [1, 2], "n": [1, 1], "m": [7, 1]}, when=when, set=values)
        assert result.skipped == (when is not None)
        assert [tuple(row.values()) for row in table.get([1, 2]).to_pylist()] == expected
        assert writer.delete([1, 2], when="t['m'] = 7").skipped == 2 - (expected[0][2] == 7)
