"""`memwal top`: what happened between two looks, by a clock of the test."""

from __future__ import annotations

import json
import os
import pty
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path

import memwal_sql as mw
from memwal_sql.view.activity import Activity, activities
from memwal_sql.view.overview import Overview, RegionView
from tests.cli.calls import call
from tests.model.process import as_another_process
from tests.model.small_rows import SCHEMA, make_rows
from tests.program import start
from tests.view.test_view import printed


def activities_of(table: mw.Table, works: list[Callable[[], object]]) -> Iterator[Activity]:
    """A look before each work and after the last, two seconds apart, by another process's eyes."""
    rest, clock = iter(works), count(step=2)

    def pause() -> bool:
        work = next(rest, None)
        return work is None or (work(), False)[1]

    return activities(mw.open_table(table.uri).overview, pause, lambda: float(next(clock)))


def test_each_work_shows_at_the_next_look(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", "bucket(id, 2)")

    def upsert() -> None:
        for _ in range(3):
            writer.upsert(make_rows(*range(20)))

    def claim() -> None:
        with as_another_process(), mw.open_table(table.uri).writer() as other:
            other.upsert(make_rows(0))

    indexed = "index id_idx BTree on id: 100% of the base table, maintained"
    now = timedelta(0)
    with table.writer() as writer:
        # A claim is an entry of the log too: its fence.
        works: list[tuple[Callable[[], object], float, list[str]]] = [
            (upsert, 4.0, ["2 regions made"]),
            (upsert, 3.0, []),
            (writer.flush, 0.0, ["2 generations flushed"]),
            (table.merge, 0.0, ["2 generations merged", "base version: 1 fragment"]),
            (table.build_indexes, 0.0, ["base version: 1 fragment", indexed]),
            (lambda: table.collect_garbage(older_than=now), 0.0, ["2 generations collected"]),
            (claim, 1.0, ["1 claim of regions"]),
        ]
        pictures = list(activities_of(table, [work for work, _, _ in works]))
    assert pictures[0].rate is None and not pictures[0].steps
    steps: list[str] = []
    for activity, (_, rate, new) in zip(pictures[1:], works, strict=True):
        steps += new
        told = [re.sub("version [0-9]+", "version", step.what) for step in activity.steps]
        assert (activity.rate, told) == (rate, steps[-8:])


def test_a_picture_names_the_busiest_regions() -> None:
    regions = [RegionView(str(n), f"r{n}\x1b", "active", 1, 0, 1, 0, n, ()) for n in range(4)]
    view = Overview("t", 1, ("id",), (), (), 0, 0, 0, tuple(regions), ())
    (first, second) = activities(lambda: view, iter([False, True]).__next__, count().__next__)
    assert first.rate is None and second.rates == dict.fromkeys("0123", 0.0)
    text = printed(second.picture(2))
    assert "and 2 more regions" in text and "r0" not in text
    assert text.index("r2\\x1b") < text.index("r3\\x1b")


def test_a_failed_look_is_a_step_and_the_next_one_goes_on() -> None:
    """The rate is that since the last look that did not fail."""

    def view(entries: int) -> Overview:
        region = RegionView("0", "r", "active", 1, 0, 1, 0, entries, ())
        return Overview("t", 1, ("id",), (), (), 0, 0, 0, (region,), ())

    answers = iter([view(1), mw.StoreUnavailableError("503\x1b"), view(9)])

    def overview() -> Overview:
        answer = next(answers)
        if isinstance(answer, mw.StoreUnavailableError):
            raise answer
        return answer

    pause, clock = iter([False, False, True]).__next__, count(step=4)
    pictures = list(activities(overview, pause, lambda: float(next(clock))))
    assert [activity.rate for activity in pictures] == [None, None, 2.0]
    assert [step.what for step in pictures[1].steps] == ["not read: 503\\x1b"]
    assert pictures[1].table == pictures[0].table and pictures[2].steps == pictures[1].steps


def test_it_prints_where_nobody_watches_and_ends_at_a_key(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", "bucket(id, 20)")
    with table.writer() as writer:
        writer.upsert(make_rows(*range(200)))
    arguments = ("top", table.uri, "--count", "2", "--interval", "0.1")
    assert call(*arguments).count("20 regions, 200 rows not flushed") == 2
    lines = call(*arguments, "--output", "json").splitlines()
    assert [json.loads(line)["rate"] for line in lines] == [None, 0.0]
    command = ("-m", "memwal_sql", "top", table.uri, "--interval", "100")
    ours, theirs = pty.openpty()
    env = os.environ | {"COLUMNS": "300", "LINES": "15"}  # six lines have no room for regions
    process = start(command, [theirs] * 3, env, has_terminal=True)
    os.close(theirs)
    screen = b""
    while b"and 11 more regions" not in screen:
        screen += os.read(ours, 1 << 16)
    os.write(ours, b"xq")
    process.join()
    assert process.exitcode == 0
    os.close(ours)
