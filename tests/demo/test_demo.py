"""The demo: its events, its checks, and a short run of the whole."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from datetime import date
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo import __main__ as demo_main
from demo.checks import Oracle, difference
from demo.events import Events, Kind
from demo.examples import load_examples
from demo.flights import (
    ARRIVAL_COLUMNS,
    DEPARTURE_COLUMNS,
    PRIMARY_KEY,
    SCHEMA,
    data_folder,
    final_state,
    load_flights,
    load_ordinary_tables,
)
from demo.monitor import Monitor, Observation, check
from demo.progress import SPAWN, Counts, Progress
from tests.each import each
from tests.model.process import forks
from tests.program import run

THREE_DAYS = date(2013, 1, 3)


@pytest.fixture(scope="module")
def all_flights() -> pa.Table:
    return load_flights()


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return load_flights(THREE_DAYS)


@pytest.fixture(scope="module")
def events(flights: pa.Table) -> Events:
    return Events.of(flights)


def test_the_primary_key_is_unique_over_the_whole_year(all_flights: pa.Table) -> None:
    assert all_flights.num_rows == 336_776
    assert all_flights.schema == SCHEMA
    assert all_flights.group_by(list(PRIMARY_KEY)).aggregate([]).num_rows == 336_776


def test_the_final_state_is_what_the_plain_csv_says(flights: pa.Table) -> None:
    with ZipFile(data_folder() / "flights.csv.zip") as archive:
        rows = csv.reader(TextIOWrapper(archive.open("flights.csv")))
        names = next(rows)
        dep_time = names.index("dep_time")
        first_days = takewhile(lambda row: date(*map(int, row[:3])) <= THREE_DAYS, rows)
        departed = [row for row in first_days if row[dep_time] not in ("", "NA")]
    assert names[:3] == ["year", "month", "day"]
    state = final_state(flights)
    assert state.num_rows == len(departed)
    for name in ("flight", "distance", "dep_delay", "arr_delay", "air_time"):
        column = names.index(name)
        known = [int(row[column]) for row in departed if row[column] not in ("", "NA")]
        assert pc.sum(state[name]).as_py() == sum(known)
        assert state[name].null_count == len(departed) - len(known)


def test_dates_and_times_are_real_ones(flights: pa.Table) -> None:
    first = flights.slice(0, 1).to_pylist()[0]  # 2013, 1, 1; scheduled at 5:15 in New York
    assert first["flight_date"] == date(2013, 1, 1)
    assert first["scheduled_at"].isoformat() == "2013-01-01T10:15:00+00:00"


def test_there_are_about_a_million_events(all_flights: pa.Table, events: Events) -> None:
    assert len(Events.of(all_flights)) == 1_001_615
    assert sum(batch.events for batch in events.batches()) == len(events)


def test_events_replayed_into_a_dict_leave_the_final_state(
    flights: pa.Table, events: Events
) -> None:
    state: dict[tuple[object, ...], dict[str, object]] = {}
    for batch in events.batches(hours=5):
        for row in batch.upserts.to_pylist():
            state[tuple(row[name] for name in PRIMARY_KEY)] = row
        for row in batch.deletes.to_pylist():
            del state[tuple(row.values())]
    actual = pa.Table.from_pylist(list(state.values()), SCHEMA)
    assert difference(actual, final_state(flights), ordered=False) is None


def test_events_come_in_time_order_and_a_flight_s_in_order_of_kind(events: Events) -> None:
    assert (events.minute[1:] >= events.minute[:-1]).all()
    last: dict[int, int] = {}
    for flight, kind in zip(events.flight.tolist(), events.kind.tolist(), strict=True):
        assert kind > last.get(flight, -1)
        last[flight] = kind
    assert set(last.values()) <= {Kind.DEPARTED, Kind.ARRIVED, Kind.CANCELLED}


def test_an_upsert_holds_what_is_known_by_then(events: Events) -> None:
    batch = next(events.batches(hours=24 * 365))
    kinds = events.kind[events.kind != Kind.CANCELLED]
    for row, kind in zip(batch.upserts.to_pylist(), kinds.tolist(), strict=True):
        assert row["scheduled_at"] is not None
        assert (row["dep_time"] is not None) == (kind >= Kind.DEPARTED)
        if kind < Kind.ARRIVED:
            assert all(row[name] is None for name in ARRIVAL_COLUMNS)
        if kind < Kind.DEPARTED:
            assert all(row[name] is None for name in DEPARTURE_COLUMNS)


def test_no_flights_make_no_events(flights: pa.Table) -> None:
    assert list(Events.of(flights.slice(0, 0)).batches()) == []


def seen(flights: int, departed: int, arrived: int, delayed: int = 0) -> Observation:
    return Observation(flights, departed, arrived, delayed, None, 0.0, 0, None)


def counts(begun: Sequence[int], durable: Sequence[int]) -> Counts:
    return Counts(tuple(begun), tuple(durable), finished=False)


NOW = counts((10, 6, 4, 2), (9, 5, 3, 1))


@each(
    "answer, last, problem",
    [
        (seen(9, 6, 3), None, None),
        (seen(7, 5, 3), seen(9, 5, 2), None),
        (seen(6, 5, 3), None, "6 flights"),
        (seen(10, 5, 3), None, "10 flights"),
        (seen(8, 4, 3), None, "departed"),
        (seen(8, 7, 3), None, "departed"),
        (seen(8, 5, 2), None, "arrived"),
        (seen(8, 5, 5), None, "arrived"),
        (seen(8, 5, 3), seen(8, 6, 3), "departed fell from 6 to 5"),
        (seen(8, 5, 3, 1), seen(8, 5, 3, 2), "delayed fell from 2 to 1"),
    ],
)
def test_the_second_process_tells_impossible_answers(
    answer: Observation, last: Observation | None, problem: str | None
) -> None:
    found = check(answer, NOW, NOW, last)
    assert found is None if problem is None else problem in (found or "")


@each(
    "actual, expected, same",
    [
        ({"a": [1, 2]}, {"a": [2, 1]}, True),
        ({"a": [1, None]}, {"a": [None, 1]}, True),
        ({"a": [1, None]}, {"a": [1, 2]}, False),
        ({"a": [1, 1, 2]}, {"a": [1, 2, 2]}, False),
        ({"a": [1]}, {"b": [1]}, False),
        ({"a": [1]}, {"a": [1, 1]}, False),
        ({"a": [0.1 + 0.2]}, {"a": [0.3]}, True),
        ({"a": [0.3001]}, {"a": [0.3]}, False),
        ({"a": [None, 0.3]}, {"a": [0.3, None]}, True),
        ({"a": [float("nan")]}, {"a": pa.array([None], pa.float64())}, False),
    ],
)
def test_answers_are_compared_as_multisets(
    actual: dict[str, object], expected: dict[str, object], same: bool
) -> None:
    found = difference(pa.table(actual), pa.table(expected), ordered=False)
    assert (found is None) == same


def test_order_counts_where_it_was_asked_for() -> None:
    assert difference(pa.table({"a": [1, 2]}), pa.table({"a": [2, 1]}), ordered=True) is not None


def test_the_oracle_s_upsert_replaces_rows_by_key(flights: pa.Table) -> None:
    oracle = Oracle(final_state(flights), load_ordinary_tables())
    insert = next(example for example in load_examples() if example.writes)
    question = "SELECT count(*) AS n, sum(dep_delay) AS minutes FROM flights"
    changed = oracle.answer(insert.source).num_rows
    before = oracle.answer(question).to_pylist()[0]
    oracle.upsert(insert)
    after = oracle.answer(question).to_pylist()[0]
    assert changed > 0
    assert after == {"n": before["n"], "minutes": before["minutes"] - 5 * changed}


def test_the_demo_runs_and_every_check_comes_out_right() -> None:
    finished = run("-m", "demo", "--until", "2013-01-01")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "WRONG" not in finished.stdout
    assert "What happened" in finished.stdout


@pytest.fixture
def quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process starts quickly: it is forked."""
    monkeypatch.setattr(SPAWN, "Process", forks().Process)


@pytest.mark.usefixtures("quick_start")
def test_the_demo_fails_when_an_answer_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo_main, "final_state", lambda flights: final_state(flights).slice(1))
    monkeypatch.setattr(demo_main, "load_examples", list)
    monkeypatch.setattr(demo_main, "_search", lambda *_: [])
    assert demo_main.main(["--until", "2013-01-01", "--uri", str(tmp_path / "flights")]) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.usefixtures("quick_start")
def test_a_second_process_that_dies_is_a_problem(tmp_path: Path) -> None:
    monitor = Monitor(str(tmp_path / "no table"), Progress())
    monitor.wait()
    assert monitor.observations == []
    assert monitor.problems != []
