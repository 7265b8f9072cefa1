"""A store so slow that no two waves of questions fit into the time that they are trusted for."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.concurrent import ReadWindow
from tests.model.opened import Remote, opened_over
from tests.model.small_rows import make_rows


class Slow(Remote):
    """Counts what is asked whether it is there."""

    asked = 0

    def exists(self, path: str) -> bool:
        """One probe."""
        self.asked += 1
        return bool(self._inner.exists(path))  # type: ignore[attr-defined]


@pytest.mark.parametrize("consistency", ["strong", "manifest"])
def test_a_reader_asks_in_order_and_ends(tmp_path: Path, consistency: str) -> None:
    table = mw.create_table(tmp_path / "t", make_rows(1).schema, "id")
    with table.writer() as writer:
        writer.upsert(make_rows(1, 2))
        writer.flush()
        writer.upsert(make_rows(3))
    stores: list[Slow] = []

    def slow(store: object) -> Slow:
        stores.append(Slow(store))
        return stores[-1]

    reader = opened_over(table.uri, slow)
    ticks = count()
    object.__setattr__(reader.context, "clock", lambda: 2 * ReadWindow.seconds * next(ticks))
    rows = {"strong": 3, "manifest": 2}[consistency]
    for _ in range(3):
        before = sum(store.asked for store in stores)
        assert reader.count_rows(consistency=consistency) == rows
        assert sum(store.asked for store in stores) - before <= 20
