"""A bank of three tables with eight regions: processes move money, merge, flush, collect and claim,
and are killed. Whatever is read meanwhile has all the money."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import memwal_sql as mw
from benchmarks.s3.faults import Fault, FaultPlan
from benchmarks.s3.server import BUCKET, proxied_server, versitygw
from tests.model.process import forks
from tests.soak import IS_SOAK, SOAK
from tests.transactions.auditor import Auditor
from tests.transactions.bank import (
    ACCOUNTS,
    START,
    TABLES,
    Bank,
    as_in_all_processes,
    read_diary,
    work,
)

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("n", pa.int64()),
        pa.field("m", pa.int64()),
        pa.field("d", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
SECONDS = 60.0 * SOAK if IS_SOAK else 4.0
STAFF = ("teller-1", "teller-2", "keeper")
# Something goes wrong with 3% of the requests.
PLAN = FaultPlan(0.03 / len(Fault), seed=1, stall_seconds=2.0)
CLIENT = {"timeout": "1s"}
SEED = 7
BETWEEN_KILLS = (2, 10) if IS_SOAK else (1, 3)  # seconds
LEAST_MOVES = 10


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_no_money_is_made_or_lost(fast_folder: Path) -> None:
    check_a_bank(fast_folder, str(fast_folder), None, None)


@pytest.mark.skipif(not IS_SOAK, reason="takes minutes")
@pytest.mark.timeout(SECONDS + 300)
def test_no_money_is_made_or_lost_on_a_faulty_server(fast_folder: Path) -> None:
    with proxied_server(fast_folder, versitygw(), faults=PLAN) as server:
        options = {**server.options, **CLIENT}
        check_a_bank(fast_folder, f"s3://{BUCKET}", options, server.direct)
        print(Counter(request.fault for request in server.log.take()))


def check_a_bank(
    folder: Path, place: str, options: Mapping[str, str] | None, direct: Mapping[str, str] | None
) -> None:
    """Run a bank whose requests go by some options, and look at its books by others."""
    uris = tuple(f"{place}/{name}" for name, _ in TABLES)
    for uri, (_, buckets) in zip(uris, TABLES, strict=True):
        regions = f"bucket(id, {buckets})"
        table = mw.create_table(uri, SCHEMA, "id", regions=regions, storage_options=direct)
        with table.writer() as writer:
            rows = {"n": START, "m": START, "d": 0, "note": ""}
            writer.upsert([{"id": account, **rows} for account in range(ACCOUNTS)])
    diaries = folder / "diaries"
    diaries.mkdir()
    bank = Bank(uris, options, diaries)
    with as_in_all_processes():
        auditor = Auditor(bank, SEED)
        done = Counter({"kills": open_for_business(bank, auditor)})
        lines = bank.lines()
        failures = [line[1] for line in lines if line[0] == "failed"]
        assert not failures, failures[0]
        done.update(" ".join(line[: 2 if line[0] == "did" else 1]) for line in lines)
        check_books(Bank(uris, direct, diaries), auditor)
    print(done, auditor.done, f"{auditor.gaps} gaps")


def open_for_business(bank: Bank, auditor: Auditor) -> int:
    """Read, and kill processes that have done something, for so long, and until some moves are
    done; the number of kills."""
    random, kills, end = Random(SEED), 0, time.monotonic() + SECONDS
    processes = {name: Employee(bank, name, random) for name in STAFF}
    try:
        next_kill = time.monotonic() + random.uniform(*BETWEEN_KILLS)
        while time.monotonic() < end or not kills or _moves(bank) < LEAST_MOVES:
            auditor.read()
            employee = processes[random.choice(STAFF)]
            if time.monotonic() > next_kill and employee.has_worked:
                employee.replace()
                kills += 1
                next_kill = time.monotonic() + random.uniform(*BETWEEN_KILLS)
        bank.close()
        for employee in processes.values():
            employee.process.join(120)
            assert employee.process.exitcode == 0, employee.process
    finally:
        for employee in processes.values():
            employee.process.kill()
            employee.process.join()
    return kills


def _moves(bank: Bank) -> int:
    return sum(line[0] == "done" for line in bank.lines())


class Employee:
    """One process after the other, with the same diary."""

    def __init__(self, bank: Bank, name: str, random: Random) -> None:
        self._bank, self._name, self._random = bank, name, random
        self._diary = bank.diaries / name
        self.process = self._start()

    @property
    def has_worked(self) -> bool:
        """Whether the process has written something down."""
        return len(read_diary(self._diary)) > self._lines + self._random.randrange(5)

    def replace(self) -> None:
        """Kill the process, and let another one go on."""
        self.process.kill()
        self.process.join()
        self.process = self._start()

    def _start(self) -> BaseProcess:
        self._lines = len(read_diary(self._diary))
        arguments = (self._bank, self._name, self._random.randrange(1 << 30))
        process = forks().Process(target=work, args=arguments, daemon=True)
        process.start()
        return process


def check_books(bank: Bank, auditor: Auditor) -> None:
    """All is there after everybody went home, and after a flush, a merge and a collection."""
    auditor.use(bank)
    auditor.follow()
    auditor.check_feeds()
    auditor.check_balances()
    for table in bank.open():
        with table.writer() as writer:  # of all regions
            writer.upsert([{"id": account, "note": "", "d": 0} for account in range(ACCOUNTS)])
        table.flush()
        table.merge()
        table.collect_garbage()
        report = table.check()
        assert report.ok, str(report)
    auditor.check_balances()
