"""Rows by their keys are those of the newest source that has them, or none (Specification 2,
"Point Lookups")."""

from __future__ import annotations

from pathlib import Path

import memwal_sql as mw
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
