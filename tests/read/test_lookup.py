"""Rows by their keys are those of the newest source that has them, or none (Specification 2,
"Point Lookups")."""

from __future__ import annotations

from collections.abc import Callable
from operator import call
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.admission import Admission
from tests.each import each
from tests.maintain.life import create, merge_all, rows
from tests.model.process import as_another_process

KEYS = range(4)


def _rows(live: dict[int, int]) -> list[dict[str, int]]:
    return [{"id": key, "val": val} for key, val in sorted(live.items())]


def _check(table: mw.Table, expected: dict[int, int]) -> None:
    """One key at a time and all at once, whoever has the MemTables."""
    want = _rows(expected)
    own, other = table, mw.open_table(table.uri)
    assert [row for key in KEYS for row in own.get([key]).to_pylist()] == want
    assert own.get(KEYS).to_pylist() == want
    assert own.get(KEYS, []).num_rows == len(want)
    with as_another_process():
        assert [row for key in KEYS for row in other.get([key]).to_pylist()] == want
        assert other.get(KEYS).to_pylist() == want


@each("layout", range(3**3))
def test_a_deleted_row_stays_away_wherever_it_and_its_tombstone_are(
    tmp_path: Path, layout: int
) -> None:
    """Key 0 is written and deleted, 1 deleted and written again, 2 written twice, 3 only deleted.
    After each of three steps nothing happens, or a flush, or a flush and a merge. Where layouts
    begin alike, all but what the handle keeps is looked at in one of them."""
    table = create(tmp_path)
    live: dict[int, int] = {}
    with table.writer() as writer:
        for step in range(3):
            if step == 1:
                writer.delete([0, 1, 3])
                live = {2: live[2]}
            else:
                first = 0 if step == 0 else 1
                writer.upsert(rows(first, 2, step))
                live |= dict.fromkeys(range(first, 3), step)
            what = layout // 3**step % 3
            if what:
                writer.flush()
            if what == 2:
                merge_all(table)
            if layout // 3 ** (step + 1):
                assert table.get(KEYS).to_pylist() == _rows(live)
            else:
                _check(table, live)


Key = int | str | tuple[int, str]
KINDS: dict[str, tuple[list[pa.Field], Callable[[int], Key]]] = {
    "integers": ([pa.field("id", pa.int64(), False)], lambda n: n - 20),
    "texts": ([pa.field("id", pa.string(), False)], lambda n: f"{n}'s"),
    "of two columns": (
        [pa.field("id", pa.int32(), False), pa.field("s", pa.string(), False)],
        lambda n: (n % 7, str(n)),
    ),
}


@pytest.mark.parametrize("resident", [False, True], ids=["by Lance", "by keys in memory"])
@each("kind", KINDS)
def test_many_keys_at_once_are_those_of_a_dict(
    tmp_path: Path, within: Any, kind: str, resident: bool
) -> None:
    """Of a base table, generations and MemTables of several regions, after random writes; some keys
    are deleted, some replaced, some never written, and some asked for twice."""
    within(Admission.set(small=-1))
    if resident:
        within(Admission.set(lookup=1 << 30, fetch=1 << 30))
        within(background_by(call))
    random, (fields, key_of) = Random(5), KINDS[kind]
    schema = pa.schema([*fields, pa.field("val", pa.int64())])
    names = [field.name for field in fields]
    table = mw.create_table(
        tmp_path / "t", schema, names, regions=[mw.bucket("id", 3)] if kind != "texts" else None
    )
    live: dict[Key, int] = {}

    def row(key: Key, val: int) -> dict[str, Any]:
        parts = key if isinstance(key, tuple) else (key,)
        return dict(zip(schema.names, (*parts, val), strict=True))

    with table.writer() as writer:
        for step in range(12):
            chosen = [key_of(n) for n in random.sample(range(200), 40)]
            writer.upsert([row(key, step) for key in chosen[10:]])
            live |= dict.fromkeys(chosen[10:], step)
            writer.delete([key for key in chosen[:10] if key in live])
            live = {key: val for key, val in live.items() if key not in chosen[:10]}
            if random.random() < 0.6:
                writer.flush()
            if random.random() < 0.4:
                table.merge()
            for count in (2, 3, 30, 250):
                asked = [key_of(random.randrange(260)) for _ in range(count)]
                want = [row(key, live[key]) for key in dict.fromkeys(asked) if key in live]
                assert table.get(asked).to_pylist() == want
                assert table.get(asked, ["val"])["val"].to_pylist() == [one["val"] for one in want]
