"""Scenarios: who takes part, and what must be true of a run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import memwal_sql as mw
from memwal_sql.maintain.gc.transactions import KEPT_SECONDS
from memwal_sql.read.live.settings import Live
from memwal_sql.write.statement import Isolation
from tests.histories.register import Kind, explains
from tests.sim.actors import (
    BANK,
    CLAIMANT,
    COPIER,
    FOLLOWER,
    JOBS,
    KEYS,
    LISTS,
    READS,
    SCHEMA,
    SURVEYS,
    WRITER,
    Actor,
    Weights,
)
from tests.sim.cycles import anomalies
from tests.sim.process import Process, simulated
from tests.sim.schedule import Schedule

_STEPS = 14
SCENARIOS: Mapping[str, Mapping[str, Weights]] = {
    "claims": {"writer": WRITER, "other": WRITER, "claimant": CLAIMANT, "reader": READS},
    "jobs": {"writer": WRITER, "merger": JOBS, "collector": JOBS, "reader": READS},
    "bank": {"teller": BANK, "other": BANK, "merger": JOBS, "reader": SURVEYS},
    "copies": {"teller": BANK, "other": BANK, "merger": JOBS, "copier": COPIER},
    "feeds": {"writer": WRITER, "claimant": CLAIMANT, "merger": JOBS, "follower": FOLLOWER},
}


def run(scenario: str, seed: int) -> Schedule:
    """One run; those of every second pair of seeds compare live rows with the files. Raises what
    went wrong, with the last steps as a note."""
    text = f"{scenario} {seed}"
    schedule = Schedule(text)
    folder, tables = (
        f"memory://{text.replace(' ', '-')}",
        2 if scenario in ("bank", "copies") else 1,
    )
    uris = [f"{folder}/{number}" for number in range(tables)]
    isolation: Isolation = "serializable" if seed % 2 else "snapshot"
    live = int(seed % 4 > 1)
    with simulated(text), Live.set(enabled=live, checked=live, waited=1, least_rows=0):
        for uri, keys in zip(uris, LISTS, strict=False):
            table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 3)")
            with table, table.writer() as writer:
                writer.upsert([{"id": key, "op": 0, "log": ""} for key in keys])
        actors = [
            Actor(name, number, uris, schedule, weights, isolation)
            for number, (name, weights) in enumerate(SCENARIOS[scenario].items(), 1)
        ]
        for actor in actors:
            actor.all = actors
        try:
            schedule.run({actor.name: lambda actor=actor: actor.play(_STEPS) for actor in actors})
            schedule.fault_rate = 0
            if len(uris) > 1 and seed % 4 > 1:
                schedule.run({"drop": lambda: _check_drop(uris, schedule)})
                del uris[0]
            else:
                serial = bool(seed % 2)
                schedule.run({"end": lambda: _check(uris, schedule, actors, serial=serial)})
        except BaseException as error:
            error.add_note("\n".join(schedule.trace[-40:]))
            error.add_note(f"PYTHONHASHSEED=0 python -m tests.sim {text}")
            raise
        finally:
            copies = (copy.uri for actor in actors for copy in actor.copies)
            for uri in (*uris, *copies):
                mw.drop_table(uri)
    return schedule


def _check(uris: list[str], schedule: Schedule, actors: list[Actor], *, serial: bool) -> None:
    """What all were told happened in some order, which ends with the rows that are there."""
    end = Actor("end", 0, uris, schedule, {})
    process = Process(uris, "end", schedule)
    end.read(range(KEYS), lambda: process.table.scan().read_all())
    lists = end.transactions[-1].reads if len(uris) == 1 else end.survey(process)
    _check_reports(process)
    for actor in actors:
        if actor.offsets is not None:
            actor._follow(process)
            for key, value in actor.followed.items():
                actor._note(Kind.READ, key, value, schedule.tick(), schedule.tick())
    transactions = [written for actor in [*actors, end] for written in actor.transactions]
    cycles = list(anomalies(transactions, serial=serial, readers=False))
    copied = [read for actor in actors for read in actor.copied]
    cycles += anomalies([*transactions, *copied], serial=False)
    assert not cycles, "\n".join(cycles)
    lost = [
        written
        for written in transactions
        if written.outcome and any(v not in lists[k] for k, v in written.appends.items())
    ]
    assert not lost, lost
    for table in process.tables:
        table.flush()
        table.merge()
    schedule.idle(2 * KEPT_SECONDS)
    for table in process.tables:
        table.collect_garbage(older_than=timedelta(0))
    end.read(range(KEYS), lambda: process.table.scan(consistency="manifest").read_all())
    _check_reports(process)
    for key in range(KEYS):
        history = [
            operation
            for actor in [*actors, end]
            for operation in actor.operations
            if operation.key == key
        ]
        history.sort(key=lambda operation: operation.start)
        assert explains(history), "\n".join(map(str, history))


def _check_drop(uris: list[str], schedule: Schedule) -> None:
    """A drop of the first table, which has the records, changes nothing that the other one has."""
    process = Process(uris, "drop", schedule)
    before = process.tables[1].to_arrow(["id", "log"]).sort_by("id")
    mw.drop_table(uris[0])
    for writes in (False, True):
        other = Process(uris[1:], "drop", schedule)
        if writes:
            rows = [
                {"id": key, "log": log}
                for key, log in zip(*before.to_pydict().values(), strict=True)
            ]
            other.writer().upsert(rows)
        assert other.table.to_arrow(["id", "log"]).sort_by("id") == before


def _check_reports(process: Process) -> None:
    for table in process.tables:
        report = table.check()
        assert report.ok, str(report)
