"""Stores that lie and fail: lost replies, timeouts that landed, "exists" that did not, torn puts.

Whatever the store answers, every acknowledged write is there, a failed one is there whole or not
at all, and the table can be written again (protocol rules 3, 5, 8 and 9).
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from memwal_sql.storage.objects.local import LocalStore
from tests.crash.script import State, base_state, read, writes
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.soak import SOAK

PUTS = (Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY, Kind.FALSE_EXISTS, Kind.LANDED_EXISTS)
OTHERS = (Kind.REFUSED, Kind.TIMEOUT)


@pytest.fixture(autouse=True)
def _no_waiting(no_pauses: None) -> None:
    """Also where no sleep can be given."""


def _faults(rng: Random, *, torn: bool) -> list[Fault]:
    faults = []
    for _ in range(rng.randint(1, 5)):
        operation = rng.choice(("put_if_absent",) * 4 + ("get", "exists", "put", "list"))
        kinds = (*PUTS, Kind.TORN) if torn else PUTS
        kind = rng.choice(kinds if operation == "put_if_absent" else OTHERS)
        path = rng.choice(("", "/wal/", "/manifest/")) if operation == "put_if_absent" else ""
        if kind is Kind.TORN:
            path = "/wal/"  # rule 9 is about entries; no store that we take halves an object
        faults.append(Fault(operation, kind, rng.randint(1, 15), path))
    return faults


def _read(uri: str) -> State:
    with as_another_process():
        return read(mw.open_table(uri))


def _play(uri: str, seed: int, faults: list[Fault], options: dict[str, Any]) -> None:
    state = base_state()
    table: Any = None
    writer: Any = None
    for write in writes(seed, 14):
        allowed = [state]
        try:
            if table is None:
                table = opened_over(uri, lambda store: FaultyStore(store, faults))
            if writer is None:
                writer = table.writer(**options)
            allowed.append(write.apply(state))
            if write.kind == "flush":
                writer.flush()
            else:
                (writer.upsert if write.kind == "upsert" else writer.delete)(write.rows())
            allowed = allowed[1:]
        except MemWalError:
            if writer is not None:
                with suppress(MemWalError):
                    writer.close()
            writer = None
        found = _read(uri)
        assert found in allowed, f"{write}: {found} is none of {allowed}"
        state = found
    if writer is not None:
        with suppress(MemWalError):
            writer.close()
    assert _read(uri) == state
    with mw.open_table(uri).writer() as again:
        again.flush()
    assert _read(uri) == state


@pytest.mark.parametrize("kind", ["whole", "torn", "remote"])
def test_no_answer_of_a_store_loses_or_halves_a_write(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    torn = kind == "torn"
    if kind == "remote":
        monkeypatch.setattr(LocalStore, "remote", True)
    rng = Random(f"faults {torn}")
    for _ in range(20 * SOAK if SOAK > 1 else 2):
        seed = rng.randrange(10_000)
        faults = _faults(Random(seed), torn=torn)
        uri = str(tmp_path / "table")
        shutil.copytree(template, uri)
        options = {"memtable_rows": rng.choice((12, 1000)), "flush_attempts": 1}
        try:
            _play(uri, seed, faults, options)
        except (AssertionError, MemWalError) as error:
            planned = [(f.operation, f.kind.name, f.nth, f.path, f.fired) for f in faults]
            raise AssertionError(f"seed {seed}, {options}, {planned}: {error!r}") from error
        finally:
            shutil.rmtree(uri)
