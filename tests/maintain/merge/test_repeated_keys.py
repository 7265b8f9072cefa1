"""Keys that plain Lance has appended again: every read gives all their rows, and a merge heals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from memwal_sql.maintain.merge.commit import Deletes

ROWS = 9
REPEATED = [3, 7, 8]

KEYS: dict[str, tuple[list[str], Callable[[int], Any]]] = {
    "integers": (["id"], lambda n: n),
    "texts": (["id"], lambda n: f"key {n}"),
    "composite": (["id", "part"], lambda n: n // 2),
}


def made(numbers: list[int], key: Callable[[int], Any], value: str) -> pa.Table:
    """A row each of these numbers."""
    ids = pa.array([key(n) for n in numbers])
    columns = [ids, pa.array([n % 2 for n in numbers]), pa.array([value] * len(numbers))]
    fields = [("id", ids.type, False), ("part", pa.int64(), False), ("s", pa.string(), True)]
    return pa.table(columns, schema=pa.schema([pa.field(*one) for one in fields]))


def found(table: mw.Table, primary_key: list[str], key: Callable[[int], Any]) -> set[Any]:
    """The values of each number's rows, sorted, by every way of reading: all ways agree where this
    has one element."""
    composite = len(primary_key) > 1
    asked = [(key(n), n % 2) if composite else key(n) for n in range(ROWS)]
    wheres = [
        f"id = {key(n)!r}" + (f" AND part = {n % 2}" if composite else "") for n in range(ROWS)
    ]

    def by_key(rows: pa.Table) -> list[list[str]]:
        values: dict[Any, list[str]] = {one: [] for one in asked}
        for row in rows.to_pylist():
            values[(row["id"], row["part"]) if composite else row["id"]].append(row["s"])
        return list(values.values())

    ways = [
        by_key(table.to_arrow()),
        by_key(table.get(asked)),
        [table.get([one])["s"].to_pylist() for one in asked],
        [table.get([one], columns=["s"])["s"].to_pylist() for one in asked],
        [table.to_arrow(filter=where)["s"].to_pylist() for where in wheres],
        [table.to_arrow(filter=f"{where} AND s <> ''")["s"].to_pylist() for where in wheres],
    ]
    assert [table.count_rows(where) for where in wheres] == [len(one) for one in ways[0]]
    return {repr([sorted(one) for one in way]) for way in ways}


@pytest.mark.parametrize(
    ("name", "indexed", "regions"),
    [("integers", False, 1), ("integers", True, 2), ("texts", False, 2), ("composite", True, 1)],
)
def test_reads_agree_and_a_merge_heals(
    name: str, indexed: bool, regions: int, tmp_path: Path, within: Any
) -> None:
    within(background_by(lambda call: call()))
    within(Deletes.set(most_rows=2))
    primary_key, key = KEYS[name]
    first = made(list(range(ROWS)), key, "o")
    table = mw.create_table(
        tmp_path / "t",
        first.schema,
        primary_key,
        regions=[mw.bucket("id", 2)] if regions == 2 else None,
    )
    with table.writer() as writer:
        writer.upsert(first)
        writer.flush()
        table.merge()
        lance.write_dataset(made(REPEATED, key, "again"), table.uri, mode="append")
        lance.write_dataset(made([8], key, "thrice"), table.uri, mode="append")
        if indexed:
            table.build_indexes()
        table.refresh()
        there = [["o"]] * ROWS
        there[3] = there[7] = ["again", "o"]
        there[8] = ["again", "o", "thrice"]
        for _ in range(2):  # the second is answered from memory
            assert found(table, primary_key, key) == {repr(there)}
        assert not table.check().ok
        writer.upsert(made([3, 8, 0], key, "new"))
        there[0] = there[3] = there[8] = ["new"]
        assert found(table, primary_key, key) == {repr(there)}
        writer.flush()
        table.merge()
        table.refresh()
        assert found(table, primary_key, key) == {repr(there)}
        assert not table.check().ok
        writer.upsert(made([7], key, "new"), set={"s": "s.s || t.s"})
        writer.flush()
    table.merge()
    table.refresh()
    assert table.check().ok
    there[7] = value = table.to_arrow(filter="s LIKE 'new_%'")["s"].to_pylist()
    assert value in (["newo"], ["newagain"])
    assert found(table, primary_key, key) == {repr(there)}


def test_a_repeated_key_that_is_deleted_is_gone(tmp_path: Path) -> None:
    key = KEYS["integers"][1]
    table = mw.create_table(tmp_path / "t", made([0], key, "o").schema, "id")
    for value in ("o", "again"):
        lance.write_dataset(made([0, 1], key, value), table.uri, mode="append")
    with table.writer() as writer:
        writer.delete([0])
        writer.flush()
    table.merge()
    assert table.to_arrow()["id"].to_pylist() == [1, 1]
