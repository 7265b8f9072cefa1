"""Several processes use one table on an S3 server whose requests go wrong: refused, applied and
lost, cut off, stalled.

What they are told is linearizable, key by key; all that was acknowledged is there at the end; and
no error is raised but such as say to make the call again, or to open the writer again.
`MEMWAL_SOAK=10` plays longer histories of more processes; `MEMWAL_SEED=...` changes them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

import pytest

import memwal_sql as mw
from benchmarks.s3.faults import Fault, FaultPlan
from benchmarks.s3.server import BUCKET, Server, proxied_server, versitygw
from tests.histories.register import Kind, Operation, explains
from tests.histories.worker import (
    BODY,
    JOBS,
    KEYS,
    READS,
    SCHEMA,
    WRITES,
    Orders,
    Told,
    Weights,
    work,
)
from tests.model.process import forks
from tests.soak import SOAK

SEED = os.environ.get("MEMWAL_SEED", "1")
# Something goes wrong with 5% of the requests, in a soak with 20%; half of what is stalled is given
# up by the client, and lands afterwards.
PLAN = FaultPlan(0.0125 if SOAK == 1 else 0.05, seed=sum(SEED.encode()), stall_seconds=1.0)
CLIENT = {"timeout": "500ms"}
WAVE_SECONDS = 0.5
ROLES = [WRITES | READS, WRITES | READS, JOBS | READS] * (1 if SOAK == 1 else 2)
STEPS = 8 * SOAK if SOAK > 1 else 6


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with proxied_server(tmp_path, versitygw(build=SOAK > 1), faults=PLAN) as found:
        yield found


def test_many_processes_see_one_register_a_key_whatever_happens_to_requests(
    server: Server,
) -> None:
    uri, direct = f"s3://{BUCKET}/table", dict(server.direct)
    mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)", storage_options=direct)
    told = play(uri, {**server.options, **CLIENT}, ROLES)
    faults = Counter(request.fault for request in server.log.take())
    assert all(faults[fault.name] for fault in Fault), faults
    failures = [failure for process in told for failure in process.failures]
    assert not failures, "\n".join(failures)
    created = Counter(table for process in told for table in process.created)
    assert all(count == 1 for count in created.values()), created
    table = mw.open_table(uri, storage_options=direct)
    rows = rows_of(table)
    check_histories(told, rows)
    check_that_all_is_flushed_and_merged(table, rows)


def play(uri: str, options: Mapping[str, str], roles: Sequence[Weights]) -> list[Told]:
    """What each of the processes was told."""
    context = forks()
    links, processes = [], []
    for number, weights in enumerate(roles, 1):
        orders = Orders(uri, dict(options), number, SEED, STEPS, weights, WAVE_SECONDS)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(orders, theirs))
        process.start()
        theirs.close()
        links.append(ours)
        processes.append(process)
    told: list[Told] = [link.recv() for link in links]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    return told


def rows_of(table: mw.Table, consistency: str = "strong") -> dict[int, int]:
    """The value of each key."""
    found = table.scan(consistency=consistency).read_all().to_pylist()
    rows = {row["id"]: row["op"] for row in found}
    assert len(rows) == len(found), found
    return rows


def check_histories(told: Sequence[Told], rows: Mapping[int, int]) -> None:
    """Some order of all operations explains every answer, and the rows at the end."""
    everything = [one for process in told for one in process.operations]
    assert any(one.kind is Kind.WRITE and not one.is_unknown for one in everything)
    last = max((one.end for one in everything if one.end != inf), default=0.0)
    for key in range(KEYS):
        of_key = [one for one in everything if one.key == key]
        of_key.append(Operation(Kind.READ, key, rows.get(key), last + 1, last + 2, "at the end"))
        shown = "\n".join(map(str, sorted(of_key, key=lambda one: one.start)))
        assert explains(of_key), f"key {key}, seed {SEED}:\n{shown}"


def check_that_all_is_flushed_and_merged(table: mw.Table, rows: Mapping[int, int]) -> None:
    """By a process that comes after all others: nothing changes but where the rows are."""
    last = {"id": list(range(KEYS, KEYS + 8)), "op": [0] * 8, "body": [BODY.format(0)] * 8}
    with table.writer() as writer:  # of both regions
        writer.upsert(last)
        writer.flush()
    expected = {**rows, **dict.fromkeys(last["id"], 0)}
    table.merge()
    table.build_indexes()
    table.snapshot_regions()
    for consistency in ("strong", "manifest", "eventual"):
        assert rows_of(table, consistency) == expected
    report = table.check()
    assert report.ok, str(report)
