"""The store answers nothing any more from some request of a call on.

Whoever is told that nothing was written, or to make the call again, is told the truth; and what
fails when a call is done, as clearing up does, does not make it one that failed.
`MEMWAL_SOAK=10` begins at all requests of each call, else at the last ones, and one before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.errors import ConflictError
from tests.crash.conftest import with_kinds
from tests.crash.strikes import stores_by
from tests.model.process import as_another_process, forget_writers
from tests.soak import IS_SOAK
from tests.write.hooked_store import Call, HookedStore

LAST_REQUESTS = 1
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("s", pa.string())])
STRICT = pa.field("m", pa.int64(), nullable=False)
State = Any


def rows(n: int, *keys: int) -> pa.Table:
    values = {"id": keys, "n": [n] * len(keys), "s": ["word"] * len(keys), "m": [1] * len(keys)}
    return pa.table({name: list(column) for name, column in values.items()}, SCHEMA.append(STRICT))


class Outage:
    """Counts the requests of the stores that it is around, and of Lance's opening of tables; while
    it is `armed`, none from the `nth` on is answered.

    Attributes:
        count: of the requests while it was armed.
    """

    def __init__(self, nth: float) -> None:
        self.nth, self.count, self._armed = nth, 0, False
        self._open = lance.dataset

    def around(self, store: Any) -> HookedStore:
        return HookedStore(store, self._hook)

    @contextmanager
    def armed(self) -> Iterator[None]:
        with (
            stores_by(self.around),
            patch.object(lance, "dataset", self._dataset),
        ):
            self._armed = True
            try:
                yield
            finally:
                self._armed = False

    def _refuses(self) -> bool:
        self.count += self._armed
        return self._armed and self.count >= self.nth

    def _hook(self, operation: str, path: str, call: Call) -> Any:
        if self._refuses():
            raise mw.StoreUnavailableError(f"no answer to {operation} of {path}")
        return call()

    def _dataset(self, *given: Any, **named: Any) -> Any:
        if self._refuses():
            raise OSError("LanceError(IO): Generic S3 error: no answer, lance/src/dataset.rs:1:1")
        return self._open(*given, **named)


@dataclass
class Session:
    """What a program holds."""

    table: mw.Table

    def sql(self, text: str) -> object:
        context = datafusion.SessionContext()
        mw.register(context, "t", self.table)
        return mw.sql(context, text).to_arrow_table()

    def write(self, call: Callable[[mw.TableWriter], object]) -> None:
        with self.table.writer() as writer:
            call(writer)


def overwrites(session: Session) -> None:
    """As Spark does."""
    task = session.table.stager("job", RowForm(), replaces=True).stage(rows(9, 7).to_batches())
    session.table.replace_staged([task])


def publishes(session: Session) -> None:
    task = session.table.stager("job", RowForm()).stage(rows(9, 1, 2, 3, 4).to_batches())
    session.table.publisher().publish([task])


WORK: dict[str, Callable[[Session], object]] = {
    "upsert": lambda s: s.write(lambda w: w.upsert(rows(9, 1, 2, 3, 4))),
    "flush": lambda s: s.write(lambda w: (w.upsert(rows(9, 1)), w.flush())),
    "INSERT": lambda s: s.sql("INSERT INTO t VALUES (7, 7, 'x', 7)"),
    "UPDATE": lambda s: s.sql("UPDATE t SET n = n + 1 WHERE id = 1"),
    "DELETE": lambda s: s.sql("DELETE FROM t WHERE id = 1"),
    "INSERT OVERWRITE": lambda s: s.sql("INSERT OVERWRITE t SELECT id + 1, n, s, m FROM t"),
    "replace_rows": lambda s: s.table.replace_rows(rows(9, 7)),
    "replace_staged": overwrites,
    "publish": publishes,
    "restore": lambda s: s.table.restore(checkpoint="before"),
    "add_columns": lambda s: s.table.add_columns(pa.field("k", pa.int64())),
    "add computed columns": lambda s: s.table.add_columns({"k": "n + 1"}),
    "drop_columns": lambda s: s.table.drop_columns("s"),
    "rename_column": lambda s: s.table.rename_column("n", "k"),
    "set_nullable": lambda s: s.table.set_nullable("m"),
    "ALTER TABLE": lambda s: s.sql("ALTER TABLE t ADD COLUMN k BIGINT"),
    "create_index": lambda s: s.table.create_index("s", "FTS", name="words", replace=True),
    "drop_index": lambda s: s.table.drop_index("s_idx"),
    "build_indexes": lambda s: s.table.build_indexes(),
    "merge": lambda s: s.table.merge(),
    "snapshot_regions": lambda s: s.table.snapshot_regions(),
    "checkpoint": lambda s: s.table.checkpoint("now"),
    "drop_checkpoint": lambda s: s.table.drop_checkpoint("before"),
    "tag": lambda s: s.table.tags.create("now", s.table.version),
    "collect_garbage": lambda s: s.table.collect_garbage(
        older_than=timedelta(0), versions_older_than=timedelta(0)
    ),
}


def state_of(uri: str) -> State:
    """What another process sees."""
    with as_another_process():
        table = mw.open_table(uri)
        found = table.scan().read_all().sort_by("id")
        return (
            found.to_pylist(),
            found.schema,
            table.indexes().select(["name", "maintained"]).to_pylist(),
            table.checkpoints()["name"].to_pylist(),
            list(table.tags),
        )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two regions with a merged generation, one to merge, and rows that are not flushed."""
    folder = tmp_path_factory.mktemp("template") / "table"
    table = mw.create_table(folder, SCHEMA.append(STRICT), "id", "bucket(id, 2)")
    with table.writer() as writer:
        for op in (1, 2):
            writer.upsert(rows(op, *range(12)))
            writer.flush()
            if op == 1:
                table.merge()
                table.create_index("s", "FTS")
                table.checkpoint("before")
        writer.upsert(rows(3, 0, 3, 6))
    return folder


def run(name: str, template: Path, place: Path, nth: float) -> tuple[int, State]:
    """Do the work on a copy of the table; how many requests it took, and what there is then."""
    folder = place / f"{name}-{nth}"
    uri = str(folder / "table")
    shutil.copytree(template, uri)
    before = state_of(uri)
    outage = Outage(nth)
    with stores_by(outage.around):
        table = mw.open_table(uri)
    failed: Exception | None = None
    with outage.armed():
        try:
            WORK[name](Session(table))
        except Exception as error:
            failed = error
    after = state_of(uri)
    if failed is not None:
        assert isinstance(failed, mw.RetryError | mw.ReopenError), repr(failed)
        says_nothing = isinstance(failed, mw.StoreUnavailableError | ConflictError)
        assert not says_nothing or after == before, f"{failed!r}: but it was written"
        forget_writers(uri)
        again = Session(mw.open_table(uri))
        with suppress(*([mw.InvalidCallError] if after != before else [])):
            WORK[name](again)
        again.table.close()
        after = state_of(uri)
    with suppress(mw.MemWalError):
        table.close()
    forget_writers(uri)
    shutil.rmtree(folder)
    return outage.count, after


@with_kinds("name", WORK)
def test_who_calls_while_the_store_goes_away_is_told_what_became_of_it(
    name: str,
    kind: str,
    template: Path,
    fast_folder: Path,
    no_pauses: None,
) -> None:
    count, done = run(name, template, fast_folder, float("inf"))
    first = 1 if IS_SOAK else max(1, count + 1 - LAST_REQUESTS)
    for nth in [*range(first, count + 1), Random(f"{name} {kind}").randint(1, count)]:
        _, after = run(name, template, fast_folder, nth)
        assert after == done, f"outage from request {nth} of {count} on"
