"""Ctrl-C, or the caller's deadline, at every request of every call.

Afterwards each region has what the call was to write, whole or not at all; the handle goes on or
says to open another one; the same call succeeds; and no thread or file is left.
`MEMWAL_SOAK=10` strikes at all requests of each call, else at one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.threads import threads_of
from tests.crash.calls import KEYS, NEW, WORK, Program, State, made, state_of
from tests.crash.conftest import with_kinds
from tests.crash.strikes import How, Strike, stores_by
from tests.model.process import forget_writers
from tests.model.waiting import eventually
from tests.soak import IS_SOAK

USUAL_REQUESTS = 8
# Calls that do the same when they are made twice.
REPEATABLE = (
    *("upsert", "buffered upsert", "atomic upsert", "delete", "delete_where", "insert", "publish"),
    *("flush", "merge", "build_indexes", "compact", "snapshot_regions", "collect_garbage"),
    *("create_index", "create_index FTS", "drop_index", "checkpoint"),
)
CALLS: Mapping[str, Callable[[Program], object]] = {
    **{name: WORK[name] for name in REPEATABLE},
    "first upsert": WORK["upsert"],
    "read": lambda p: (p.table.get([1, 2]), p.table.scan().read_all()),
}
# What the same call says once it was done.
REFUSED: Mapping[str, type[Exception]] = {
    "insert": mw.KeysExistError,
    "drop_index": mw.InvalidCallError,
    "checkpoint": mw.InvalidCallError,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "table"
    made(str(folder), "bucket(id, 2)")
    return folder


@pytest.fixture(scope="module")
def before(template: Path) -> State:
    return state_of(str(template))


@pytest.fixture(autouse=True)
def scratch(fast_folder: Path, monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> Iterator[Path]:
    """The folder for temporary files, where none may be left."""
    folder = fast_folder / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def is_legal(state: State, before: State, done: State, table: mw.Table) -> bool:
    """Whether each region is as it was before, or as it is to be."""
    (spec,) = table.info.region_specs
    keys = sorted({*KEYS, *NEW})
    _, regions = spec.assign(pa.table({"id": keys}))
    for region in range(2):
        chosen = [key for key, one in zip(keys, regions, strict=True) if one == region]
        now, old, new = ([s.rows.get(key) for key in chosen] for s in (state, before, done))
        if now not in (old, new):
            return False
    return True


@dataclass(frozen=True)
class Call:
    """A call on copies of a table, and what another process sees before it and after it."""

    name: str
    template: Path
    before: State
    done: State


def strike(call: Call, folder: Path, scratch: Path, nth: int, how: How) -> bool:
    """Make a call on a copy of the table, and strike; whether it came to the request."""
    name, done = call.name, call.done
    uri = str(folder / f"table-{nth}-{how.name}")
    shutil.copytree(call.template, uri)
    struck = Strike(nth, how)
    with stores_by(struck.around):
        program = Program(mw.open_table(uri), durable=name != "buffered upsert")
    if name != "first upsert":
        program.claim()
    failed = None
    try:
        with struck.armed():
            CALLS[name](program)
            threading.Event().wait(0)  # an interrupt may be under way
    except (KeyboardInterrupt, mw.RetryError, mw.ReopenError) as error:
        failed = error
    if not struck.struck:
        assert failed is None
    if how is How.DEADLINE and isinstance(failed, mw.RetryError):
        unchecked = "was written, but could not be checked" in str(failed)
        assert isinstance(failed, mw.DeadlineExceededError) or unchecked, repr(failed)
        assert "again" in str(failed), failed
    now = state_of(uri)
    assert is_legal(now, call.before, done, program.table), (failed, now)
    for _ in range(2):
        try:
            CALLS[name](program)
        except mw.ReopenError:
            program.reopen()
        except REFUSED.get(name, ()):
            break
        else:
            break
    else:
        raise AssertionError("a new writer can't write either")
    assert state_of(uri) == done
    program.close()
    assert state_of(uri) == done
    if IS_SOAK:
        report = mw.open_table(uri).check()
        assert report.ok, str(report)
    assert list(scratch.iterdir()) == []
    calls = threads_of(os.getpid())._under_way
    eventually(lambda: not any(uri in what for what in tuple(calls.values())))
    forget_writers(uri)
    shutil.rmtree(uri)
    return struck.struck


def outcome(name: str, template: Path, folder: Path) -> State:
    """What a call leaves that nothing ends."""
    uri = str(folder / "done")
    shutil.copytree(template, uri)
    program = Program(mw.open_table(uri))
    CALLS[name](program)
    program.close()
    done = state_of(uri)
    shutil.rmtree(uri)
    return done


@with_kinds("name", CALLS)
def test_a_call_that_is_ended_at_any_request_leaves_nothing_half_done(
    name: str,
    kind: str,
    template: Path,
    before: State,
    fast_folder: Path,
    scratch: Path,
) -> None:
    rng = Random(f"{name} {kind}")
    call = Call(name, template, before, outcome(name, template, fast_folder))
    for how in How:
        if IS_SOAK:
            count = 1
            while strike(call, fast_folder, scratch, count, how):
                count += 1
            assert count > 1
        else:
            strike(call, fast_folder, scratch, rng.randint(1, USUAL_REQUESTS), how)
