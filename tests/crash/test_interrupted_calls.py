"""Ctrl-C, or the caller's deadline, at every request of every call.

Afterwards each region has what the call was to write, whole or not at all; the handle goes on or
says to open another one; the same call succeeds; and no thread or file is left.
`MEMWAL_SOAK=10` strikes at all requests of each call, else at one.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from tests.crash.conftest import with_kinds
from tests.crash.strikes import How, Strike, stores_by
from tests.model.process import as_another_process, forget_writers
from tests.soak import IS_SOAK

USUAL_REQUESTS = 8
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("op", pa.int64()), ("word", pa.string())])
KEYS = 12
State = Mapping[int, int]
BEFORE: State = dict.fromkeys(range(KEYS), 2) | dict.fromkeys(range(0, KEYS, 3), 3)
OWN_THREADS = ("memwal-own", "memwal-flush", "memwal-region")


def rows(keys: list[int], op: int) -> pa.Table:
    return pa.table({"id": keys, "op": [op] * len(keys), "word": ["a"] * len(keys)}, schema=SCHEMA)


@dataclass
class Handle:
    """What a program holds: a table and its writer."""

    uri: str
    table: mw.Table
    writer: mw.TableWriter

    def reopen(self, **options: bool) -> None:
        """A new writer."""
        with suppress(mw.MemWalError):
            self.writer.close()
        self.writer = self.table.writer(**options)


@dataclass(frozen=True)
class Work:
    """A call, and the rows that there are afterwards.

    Attributes:
        claimed: whether the writer has its regions before.
        refused: what the same call may say once it was done.
    """

    call: Callable[[Handle], object]
    after: State = field(default_factory=lambda: BEFORE)
    claimed: bool = True
    refused: type[Exception] | tuple[type[Exception], ...] = ()
    durable: bool = True


def changed(keys: list[int], op: int) -> State:
    return {**BEFORE, **dict.fromkeys(keys, op)}


NEW = [1, 2, 5, 6, 20, 21, 22, 23]
FEWER = {key: op for key, op in BEFORE.items() if key not in (1, 2, 5, 6)}


def buffered(handle: Handle) -> None:
    handle.writer.upsert(rows(NEW, 9))
    handle.writer.sync()


def published(handle: Handle) -> None:
    task = handle.table.stager("job", RowForm()).stage(rows(NEW, 9).to_batches())
    handle.table.publisher().publish([task])


WORK: dict[str, Work] = {
    "upsert": Work(lambda h: h.writer.upsert(rows(NEW, 9)), changed(NEW, 9)),
    "first upsert": Work(lambda h: h.writer.upsert(rows(NEW, 9)), changed(NEW, 9), claimed=False),
    "buffered upsert": Work(buffered, changed(NEW, 9), durable=False),
    "atomic upsert": Work(lambda h: h.writer.upsert(rows(NEW, 9), atomic=True), changed(NEW, 9)),
    "delete": Work(lambda h: h.writer.delete({"id": [1, 2, 5, 6]}), FEWER),
    "delete_where": Work(lambda h: h.writer.delete_where("id in (1, 2, 5, 6)"), FEWER),
    "insert": Work(
        lambda h: h.writer.insert(rows(NEW[4:], 9)), changed(NEW[4:], 9), refused=mw.KeysExistError
    ),
    "publish": Work(published, changed(NEW, 9)),
    "flush": Work(lambda h: h.writer.flush()),
    "merge": Work(lambda h: h.table.merge()),
    "build_indexes": Work(lambda h: h.table.build_indexes()),
    "compact": Work(lambda h: (h.table.merge(), h.table.compact())),
    "snapshot_regions": Work(lambda h: h.table.snapshot_regions()),
    "collect_garbage": Work(
        lambda h: h.table.collect_garbage(
            older_than=timedelta(0), versions_older_than=timedelta(0)
        ),
    ),
    "create_index": Work(lambda h: h.table.create_index("op", "BTREE", name="o", replace=True)),
    "create_index FTS": Work(lambda h: h.table.create_index("word", "FTS", replace=True)),
    "drop_index": Work(lambda h: h.table.drop_index("word_idx"), refused=mw.InvalidCallError),
    "checkpoint": Work(lambda h: h.table.checkpoint("now"), refused=mw.InvalidCallError),
    "read": Work(lambda h: (h.table.get([1, 2]), h.table.scan().read_all())),
}


@dataclass(frozen=True)
class Template:
    """A table to copy, and the keys of its regions."""

    folder: Path
    regions: Sequence[Set[int]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Two regions with a merged generation, one to merge, and rows that are not flushed."""
    folder = tmp_path_factory.mktemp("template") / "table"
    table = mw.create_table(folder, SCHEMA, "id", regions="bucket(id, 2)")
    table.create_index("word", "FTS")
    with table.writer() as writer:
        for op in (1, 2):
            writer.upsert(rows(list(range(KEYS)), op))
            writer.flush()
            if op == 1:
                table.merge()
        writer.upsert(rows(list(range(0, KEYS, 3)), 3))
    regions: dict[UUID, set[int]] = {}
    with mw.create_table("memory://regions", SCHEMA, "id", "bucket(id, 2)").writer() as writer:
        for key in {*range(KEYS), *NEW}:
            [region] = writer.upsert(rows([key], 0)).positions
            regions.setdefault(region, set()).add(key)
    assert len(regions) == 2
    return Template(folder, list(regions.values()))


@pytest.fixture(autouse=True)
def scratch(fast_folder: Path, monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> Iterator[Path]:
    """The folder for temporary files, where none may be left."""
    folder = fast_folder / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def state_of(uri: str) -> State:
    """The rows as another process sees them."""
    with as_another_process():
        found = mw.open_table(uri).scan().read_all()
    state = dict(zip(found["id"].to_pylist(), found["op"].to_pylist(), strict=True))
    assert len(state) == found.num_rows
    return state


def is_legal(state: State, work: Work, regions: Sequence[Set[int]]) -> bool:
    """Whether each region is as it was before, or as it is to be."""
    return all(
        _within(state, keys) in (_within(BEFORE, keys), _within(work.after, keys))
        for keys in regions
    )


def _within(state: State, keys: Set[int]) -> State:
    return {key: op for key, op in state.items() if key in keys}


def strike(work: Work, template: Template, folder: Path, scratch: Path, nth: int, how: How) -> bool:
    """Do the work on a copy of the table, and strike; whether it came to the request."""
    uri = str(folder / f"table-{nth}-{how.name}")
    shutil.copytree(template.folder, uri)
    struck = Strike(nth, how)
    with stores_by(struck.around):
        table = mw.open_table(uri)
    handle = Handle(uri, table, table.writer(durable=work.durable))
    if work.claimed:
        handle.writer.upsert(rows([0, 1, 2, 3], 7))
        handle.writer.upsert(rows([0, 3], 3))
        handle.writer.upsert(rows([1, 2], 2))
        handle.writer.sync()
    failed = None
    try:
        with struck.armed():
            work.call(handle)
            threading.Event().wait(0)  # an interrupt may be under way
    except (KeyboardInterrupt, mw.RetryError, mw.ReopenError) as error:
        failed = error
    if not struck.struck:
        assert failed is None
    if how is How.DEADLINE and isinstance(failed, mw.RetryError):
        unchecked = "was written, but could not be checked" in str(failed)
        assert isinstance(failed, mw.DeadlineExceededError) or unchecked, repr(failed)
        assert "again" in str(failed), failed
    assert is_legal(state_of(uri), work, template.regions), (failed, state_of(uri))
    for _ in range(2):
        try:
            work.call(handle)
        except mw.ReopenError:
            handle.reopen(durable=work.durable)
        except work.refused:
            break
        else:
            break
    else:
        raise AssertionError("a new writer can't write either")
    assert state_of(uri) == work.after
    with suppress(mw.ReopenError):
        handle.writer.close()
    table.close()
    assert state_of(uri) == work.after
    if IS_SOAK:
        report = mw.open_table(uri).check()
        assert report.ok, str(report)
    assert list(scratch.iterdir()) == []
    left = [one.name for one in threading.enumerate() if one.name.startswith(OWN_THREADS)]
    assert not left
    forget_writers(uri)
    shutil.rmtree(uri)
    return struck.struck


@with_kinds("name", WORK)
def test_a_call_that_is_ended_at_any_request_leaves_nothing_half_done(
    name: str,
    kind: str,
    template: Template,
    fast_folder: Path,
    scratch: Path,
) -> None:
    rng = Random(f"{name} {kind}")
    for how in How:
        if IS_SOAK:
            count = 1
            while strike(WORK[name], template, fast_folder, scratch, count, how):
                count += 1
            assert count > 1
        else:
            nth = rng.randint(1, USUAL_REQUESTS)
            strike(WORK[name], template, fast_folder, scratch, nth, how)
