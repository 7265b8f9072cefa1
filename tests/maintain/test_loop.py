"""All jobs in a loop: each is done when there is enough to do for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import RetryError
from memwal_sql.maintain.jobs import JOBS, JobRun, Triggers
from memwal_sql.maintain.loop import run_all_jobs, run_jobs_forever
from memwal_sql.maintain.unflushed import UnflushedLog
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])


@dataclass
class FakeTable:
    """Generations that are flushed, by region number; time passes by `tick`s."""

    flushed: dict[int, set[int]] = field(default_factory=dict)
    failing: set[str] = field(default_factory=set)
    error: type[Exception] | dict[str, type[Exception]] = RetryError
    now: float = 0.0
    uri: str = "memory:t"
    unflushed: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    behind: list[str] = field(default_factory=lambda: ["a_idx"])
    small: int = 0
    garbage: list[str] = field(default_factory=lambda: ["x", "y"])

    def clock(self) -> float:
        return self.now

    def _call(self, name: str) -> None:
        if name in self.failing:
            error = self.error[name] if isinstance(self.error, dict) else self.error
            raise error(f"{name} failed")

    def snapshot(self, consistency: str) -> Any:
        assert consistency == "manifest"
        self._call("look")
        regions = [
            SimpleNamespace(
                region_id=UUID(int=region),
                sources=[SimpleNamespace(generation=g) for g in sorted(generations)],
            )
            for region, generations in self.flushed.items()
        ]
        return SimpleNamespace(regions=regions)

    def unflushed_logs(self, *, with_ages: bool, refresh: bool) -> list[UnflushedLog]:
        """By region number, its epoch, `flushed_within`, and age by the store's clock."""
        self._call("logs")
        return [
            UnflushedLog(UUID(int=region), epoch, 0, within, age if with_ages else 0.0)
            for region, (epoch, within, age) in self.unflushed.items()
        ]

    def open_rows(self) -> int:
        return 0

    def flush_regions(self, regions: Any) -> int:
        self._call("flush")
        for region in regions:
            del self.unflushed[region.int]
        return len(regions)

    def merge(self, progress: Any = None) -> int:
        self._call("merge")
        merged = sum(map(len, self.flushed.values()))
        self.flushed = {}
        return merged

    def build_indexes(self, progress: Any = None) -> list[str]:
        self._call("index")
        return self.behind

    def compact(self, progress: Any = None, *, dry_run: bool = False, **extent: Any) -> int:
        self.extent = extent
        if not dry_run:
            self._call("compact")
            self.small, left = 0, self.small
            return left
        return self.small

    def snapshot_regions(self) -> int:
        self._call("snapshot")
        return 7

    def collect_garbage(
        self, *, older_than: Any, versions_older_than: Any, progress: Any = None
    ) -> pa.Table:
        self._call("gc")
        self.ages = (older_than, versions_older_than)
        return pa.table({"path": self.garbage})


class StopError(Exception):
    """Ends a loop."""


def rounds_of(
    table: FakeTable, triggers: Triggers, *between: Callable[[float], object]
) -> list[list[str]]:
    """The jobs of each round; `between`, which get the length of the pause, come before the second
    round and so on."""
    rounds: list[list[str]] = [[]]
    calls = iter(between)

    def sleep(pause: float) -> None:
        for call in calls:
            rounds.append([])
            call(pause)
            return
        raise StopError

    def note(run: JobRun) -> None:
        rounds[-1].append(run.job if run.error is None else f"{run.job}!")

    with pytest.raises(StopError):
        run_jobs_forever(table, triggers, clock=table.clock, sleep=sleep, rounds=100, on_run=note)
    return rounds


TRIGGERS = Triggers(
    merge_generations=3,
    merge_seconds=60,
    index_seconds=300,
    snapshot_seconds=30,
    collect_seconds=900,
)


@each(
    "triggers, ages",
    [
        (Triggers(), (timedelta(hours=1), timedelta(days=7))),
        (Triggers(version_seconds=math.inf), (timedelta(hours=1), None)),
        (Triggers(grace_seconds=0, version_seconds=60), (timedelta(0), timedelta(minutes=1))),
    ],
)
def test_collections_keep_what_the_triggers_say(triggers: Triggers, ages: Any) -> None:
    table = FakeTable()
    run_all_jobs(table, triggers)
    assert table.ages == ages


# A table, the triggers, what changes before each further round (seconds are added), and the jobs.
Rounds = tuple[FakeTable, Triggers, list[dict[str, Any]], list[list[str]]]
OFTEN = Triggers(merge_generations=3, snapshot_seconds=0)
FIRST = ["index", "gc"]
ROUNDS: dict[str, Rounds] = {
    "nothing is due": (FakeTable(), TRIGGERS, [{"now": 10}, {"now": 10}], [FIRST, [], []]),
    "a region has many generations, or one has waited": (
        FakeTable({1: {1}, 2: {1}}),
        TRIGGERS,
        [
            {"flushed": {1: {1, 2, 3}, 2: {1}}},
            {"now": 20, "flushed": {2: {2}}},
            {"now": 29},
            {"now": 31},
        ],
        # Indexes are looked at after a merge. Regions are recorded 29 seconds after a flush.
        [FIRST, ["merge", "index"], [], ["snapshot"], ["merge", "index"]],
    ),
    "regions are recorded when something was flushed since": (
        FakeTable(),
        TRIGGERS,
        [{"now": 31, "flushed": {1: {1}}}, {"now": 20}],
        [FIRST, ["snapshot"], []],
    ),
    "nothing becomes of a log for longer than it was to be flushed within": (
        FakeTable(unflushed={1: (1, 60, 1e9), 2: (1, 600, 1e9)}),
        Triggers(index_seconds=math.inf, collect_seconds=math.inf, flush_seconds=100),
        [
            {"now": 155},
            {"now": 30, "unflushed": {1: (2, 60, 1e9), 2: (1, 600, 1e9)}},
            {"now": 155},
            {"now": 30},
            {"now": 400},
        ],
        [FIRST, [], [], [], ["flush"], ["flush"]],
    ),
    "indexes and garbage are looked at now and then": (
        FakeTable(),
        TRIGGERS,
        [{"now": 240}, {"now": 60}, {"now": 600}],
        [FIRST, [], ["index"], FIRST],
    ),
    **{
        f"{failing} fails once, and holds up nothing else": (
            FakeTable({1: {1, 2, 3}}, failing={failing}),
            OFTEN,
            [{"failing": set()}],
            rounds,
        )
        for failing, rounds in {
            "look": [["merge!"], ["merge", *FIRST]],
            "merge": [["merge!", "index", "snapshot", "gc"], ["merge", "index"]],
            "index": [["merge", "index!", "gc"], ["index"]],
            "gc": [["merge", "index", "gc!"], ["gc"]],
        }.items()
    },
    "a record fails": (
        FakeTable({1: {1}}, failing={"snapshot"}),
        OFTEN,
        [{"failing": set()}, {}],
        [["index", "snapshot!", "gc"], ["snapshot"], []],
    ),
    "a damaged log does not end the loop": (
        FakeTable({1: {1, 2, 3}}, {"flush"}, mw.CorruptFileError, unflushed={1: (1, 1, 0.0)}),
        Triggers(merge_generations=3, flush_seconds=100),
        [{"now": 101}] * 3,
        [["merge", *FIRST], ["flush!"], ["flush!"], ["flush!", "index"]],
    ),
    "small fragments, after the indexes were built; until then it is no job": (
        FakeTable({1: {1, 2, 3}}),
        TRIGGERS,
        [{"small": 3, "failing": {"compact"}}, {"failing": set()}, {}],
        [["merge", *FIRST], ["compact!"], ["compact"], []],
    ),
}


@each("name", ROUNDS)
def test_jobs_are_done_when_they_are_due(name: str) -> None:
    table, triggers, changes, expected = ROUNDS[name]

    def change(fields: dict[str, Any]) -> Callable[[float], None]:
        def apply(_: float) -> None:
            table.now += fields.get("now", 0)
            for field_name, value in fields.items():
                if field_name != "now":
                    setattr(table, field_name, value)

        return apply

    assert rounds_of(table, triggers, *map(change, changes)) == expected
    assert "flush" in table.failing or table.unflushed == {}
    assert table.extent == {"fragments": 4, "deleted": 0.2}


def test_one_look_goes_by_the_clock_of_the_store() -> None:
    ages = {1: (1, 60, 359.0), 2: (1, 60, 361.0), 3: (1, 600, 899.0), 4: (9, 1, 9e9)}
    for triggers, left in ((Triggers(), {1, 3}), (Triggers(flush_seconds=math.inf), set(ages))):
        table = FakeTable(unflushed=dict(ages))
        found = list(run_all_jobs(table, triggers))
        assert found[0].outcome == (
            f"{4 - len(left)} regions of closed or silent writers flushed; {len(left)} regions "
            "with rows left, whose writers may be open"
        )
        assert table.unflushed.keys() == left


@each("failing", ["logs", "flush"])
def test_a_flush_that_fails_holds_up_nothing(failing: str) -> None:
    table = FakeTable(unflushed={1: (1, 1, 1e9)}, failing={failing})
    runs: list[JobRun] = []
    with pytest.raises(RetryError, match=f"{failing} failed"):
        run_all_jobs(table, on_run=runs.append)
    done = [one.job for one in runs if one.error is None]
    assert done == ["merge", "index", "compact", "snapshot", "gc"]


def test_other_errors_end_the_loop() -> None:
    table = FakeTable(failing={"gc"}, error=mw.RepairError)
    with pytest.raises(mw.RepairError, match="gc failed"):
        run_jobs_forever(table, TRIGGERS, clock=table.clock, rounds=9)


def test_an_error_of_the_last_round_is_raised_and_an_earlier_one_is_not() -> None:
    table = FakeTable({1: {1, 2, 3}}, failing={"merge", "gc"})
    failed: list[str] = []
    with pytest.raises(RetryError, match="merge failed") as raised:
        run_jobs_forever(
            table, TRIGGERS, rounds=2, interval=0, on_run=lambda run: failed.append(run.job)
        )
    assert failed.count("merge") == 2 and failed.count("gc") == 2
    assert raised.value.__notes__ == [
        "the job 'merge' was not done: merge failed",
        "the job 'gc' was not done: gc failed",
    ]
    run_jobs_forever(table, TRIGGERS, rounds=2, sleep=lambda seconds: table.failing.clear())


def test_an_event_ends_the_loop_between_two_jobs_and_in_a_pause() -> None:
    for job in ("merge", "gc"):
        stop, done = Event(), list[str]()

        def note(run: JobRun, stop: Event = stop, done: list[str] = done, last: str = job) -> None:
            done.append(run.job)
            if run.job == last:
                stop.set()

        table = FakeTable({1: {1, 2, 3}})
        run_jobs_forever(table, TRIGGERS, interval=1e6, idle_interval=1e6, stop=stop, on_run=note)
        assert done == (["merge"] if job == "merge" else ["merge", "index", "gc"])


def test_every_job_once() -> None:
    runs = [
        JobRun("flush", "0 regions of closed or silent writers flushed", 0.0),
        JobRun("merge", "1 generations merged", 0.0),
        JobRun("index", "indexes brought up to date: a_idx", 0.0),
        JobRun("compact", "0 fragments compacted", 0.0),
        JobRun("snapshot", "regions recorded in version 7", 0.0),
        JobRun("gc", "2 things deleted", 0.0),
    ]
    seen: list[JobRun] = []
    table = FakeTable({1: {1}})
    assert run_all_jobs(table, clock=lambda: 0.0, on_run=seen.append) == runs
    assert seen == runs and table.flushed == {}


def test_what_fails_once_is_raised_after_the_other_jobs_had_their_turn() -> None:
    """The gravest error of several, and a note for each."""
    retry, repair = RetryError, mw.CorruptFileError
    cases: list[tuple[dict[str, type[Exception]], str]] = [
        ({"merge": retry}, "merge"),
        ({"gc": retry}, "gc"),
        ({"index": repair}, "index"),
        ({"merge": retry, "index": repair, "gc": repair}, "index"),
        ({"merge": repair, "snapshot": mw.FencedError, "gc": retry}, "merge"),
        (dict.fromkeys(["merge", "index", "snapshot", "gc"], retry), "merge"),
    ]
    for errors, raised in cases:
        table, seen = FakeTable({1: {1}}, failing=set(errors), error=errors), list[JobRun]()
        with pytest.raises(errors[raised], match=f"^{raised} failed") as caught:
            run_all_jobs(table, clock=lambda: 0.0, on_run=seen.append)
        assert [run.job for run in seen] == list(JOBS), errors
        assert {run.job for run in seen if run.error is not None} == set(errors)
        notes = [f"the job {job!r} was not done: {job} failed" for job in errors]
        assert caught.value.__notes__ == notes
    with pytest.raises(OSError, match="gc failed"):  # of none of our kinds
        run_all_jobs(FakeTable(failing={"gc"}, error=OSError))


def test_a_failed_job_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    run_jobs_forever(
        table := FakeTable(failing={"index"}),
        rounds=2,
        sleep=lambda seconds: table.failing.clear(),
    )
    assert caplog.messages == ["memory:t: the job index failed: RetryError"]


@each(
    "values",
    [
        {"merge_generations": -1},
        {"index_seconds": "9"},
        {"compact_fragments": 1},
        {"compact_deleted": 0.0},
        {"grace_seconds": math.inf},
    ],
)
def test_triggers_are_numbers(values: dict[str, Any]) -> None:
    with pytest.raises(mw.InvalidCallError, match=r"must be (finite|a (whole )?number)"):
        Triggers(**values)


def test_the_loop_keeps_a_real_table_short(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id")
    done: list[JobRun] = []
    with table.writer() as writer:
        for number in range(4):
            writer.upsert(pa.table({"id": [number], "n": [number]}, schema=SCHEMA))
            writer.flush()
        triggers = Triggers(2, 60, 0, 0, 0)
        run_jobs_forever(table, triggers, interval=0, rounds=3, on_run=done.append)
    assert all(one.error is None for one in done)
    assert [one.job for one in done][:3] == ["merge", "index", "gc"]
    assert done[0].outcome == "4 generations merged"
    assert table.overview().unmerged == 0
    assert table.scan().read_all().num_rows == 4


def test_an_idle_table_is_looked_at_less_and_less() -> None:
    """Until something is flushed: then all is as at first."""
    table = FakeTable(behind=[], garbage=[])
    looks, pauses = list[float](), list[float]()

    def wait(pause: float) -> None:
        pauses.append(pause)
        table.now += pause
        looks.append(table.now)

    def flush(pause: float) -> None:
        wait(pause)
        table.flushed = {0: {1}}

    def merge(pause: float) -> None:
        pauses.append(pause)
        table.now += 60.0

    jobs = rounds_of(table, TRIGGERS, *[wait] * 50, flush, merge, wait)
    day = [number for number, now in enumerate(looks[:50]) if now >= 3600]
    assert pauses[:8] == [10, 20, 40, 80, 160, 320, 600, 600]
    assert max(pauses) == 600 and day[0] < 12
    # In the first hour a few, then fewer and fewer.
    done = [job for one in jobs[:50] for job in one]
    assert 3 <= done.count("index") <= 7 and 3 <= done.count("gc") <= 6
    assert "merge" not in done and "snapshot" not in done
    assert jobs[52][:1] == ["merge"]
    assert pauses[-2:] == [5.0, 5.0]
