"""Which queries are run over a new base version: the last of each kind, of late, that are fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memwal_sql.read.rehearsals import Rehearsal, Rehearsals
from planner.model import Snapshot, TableInfo
from tests.model.pairs import SCHEMA

SNAPSHOT = Snapshot(TableInfo(SCHEMA, ("id",)), None, ())


class Stage:
    """Rehearsals by a clock of their own, and what was run."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ran: list[object] = []
        self.rehearsals = Rehearsals(lambda: self.now)

    def query(self, what: object, batches: int = 1, seconds: float = 0.0) -> Rehearsal:
        """One that yields so many batches, each after so many seconds."""

        def rows(snapshot: Snapshot) -> Iterator[object]:
            assert snapshot is SNAPSHOT
            for number in range(batches):
                self.now += seconds
                self.ran.append(what if batches == 1 else (what, number))
                yield number

        return rows

    def run(self) -> list[object]:
        self.ran.clear()
        self.rehearsals.run(SNAPSHOT)
        return list(self.ran)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_last_query_of_each_kind_is_run(stage: Stage) -> None:
    assert not stage.rehearsals and not stage.run()
    for what in ("a", "b", "c"):
        stage.rehearsals.note(what[0] == "b", stage.query(what))
    assert stage.rehearsals
    assert sorted(map(str, stage.run())) == ["b", "c"]
    for number in range(40):
        stage.rehearsals.note(number, stage.query(number))
    assert stage.run() == list(range(24, 40))


def test_what_nobody_asks_any_more_is_not_run(stage: Stage) -> None:
    stage.rehearsals.note("old", stage.query("old"))
    stage.now = 40
    stage.rehearsals.note("new", stage.query("new"))
    assert stage.run() == ["old", "new"]
    stage.now = 80
    assert stage.run() == ["new"]


def test_a_slow_query_is_broken_off_and_left_out_for_some_time(stage: Stage) -> None:
    stage.rehearsals.note("slow", stage.query("slow", batches=9, seconds=0.9))
    stage.rehearsals.note("fast", stage.query("fast"))
    assert stage.run() == [("slow", 0), ("slow", 1), ("slow", 2), "fast"]
    for _ in range(8):
        assert stage.run() == ["fast"]
    assert stage.run()[0] == ("slow", 0)


def test_all_together_take_a_few_seconds(stage: Stage) -> None:
    for number in range(9):
        stage.rehearsals.note(number, stage.query(number, seconds=1.5))
    assert stage.run() == [0, 1, 2]


def test_one_that_fails_keeps_no_other_from_being_run(stage: Stage) -> None:
    def fail(_: Snapshot) -> Iterator[object]:
        raise OSError("no more files")

    stage.rehearsals.note("bad", fail)
    stage.rehearsals.note("good", stage.query("good"))
    assert stage.run() == ["good"]
