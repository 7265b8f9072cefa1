"""A store that refuses every request from some moment on, those of Lance too.

Whatever is called, it succeeds or raises an error of ours; afterwards a read has the rows of before
or those of the call, and the same call succeeds or says why it need not.
`MEMWAL_SOAK=10` refuses from each of the requests on, else from some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from random import Random
from typing import Any
from uuid import uuid4
from zlib import crc32

import datafusion
import pyarrow as pa
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

import memwal_sql as mw
from memwal_sql.errors import ConflictError, MemWalError
from memwal_sql.storage.objects.concurrent import ReadWindow
from tests.each import each
from tests.model.process import as_another_process
from tests.model.s3 import Application, s3_server
from tests.soak import IS_SOAK, usual

BUCKET = "refused"
MOST_REQUESTS = 400  # of one call
EVERY_REQUEST = 1_000_000
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("words", pa.string()),
        ("v", pa.list_(pa.float32(), 4)),
        pa.field("n", pa.int64(), False),
    ]
)
NOW = timedelta(0)


class Refuser:
    """Answers all requests with 403 once so many have been let through."""

    def __init__(self) -> None:
        self.left = EVERY_REQUEST

    def around(self, inner: Application) -> Application:
        """For `s3_server`."""

        def application(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            self.left -= 1
            if self.left >= 0:
                return inner(environment, start)
            body = b"<Error><Code>AccessDenied</Code><Message>refused</Message></Error>"
            start("403 Forbidden", [("Content-Length", str(len(body)))])
            return [body]

        return application


def rows(first: int, count: int, word: str) -> pa.Table:
    keys = range(first, first + count)
    vectors = [[float(key), 1.0, 2.0, 3.0] for key in keys]
    columns = {"id": keys, "words": [word] * count, "v": vectors, "n": [count] * count}
    return pa.table(columns, schema=SCHEMA)


def written(table: mw.Table, first: int, count: int, word: str) -> None:
    with table.writer() as writer:
        writer.upsert(rows(first, count, word))
        writer.flush()


def sql(table: mw.Table, text: str) -> object:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return mw.sql(context, text).to_arrow_table()


READS: dict[str, Callable[[mw.Table], object]] = {
    "get": lambda table: table.get([1, 12]),
    "scan": lambda table: table.to_arrow(),
    "count": lambda table: table.count_rows("id > 3"),
    "vector search": lambda table: table.vector_search("v", [1.0, 1.0, 2.0, 3.0], 3),
    "text search": lambda table: table.full_text_search("words", "second", 3),
    "changes": lambda table: list(table.changes()),
    "history": lambda table: (table.history(), table.snapshots(), table.files()),
    "regions": lambda table: (table.regions(), table.generations(), table.wal()),
    "indexes": lambda table: table.indexes(),
    "overview": lambda table: table.overview(),
    "check": lambda table: table.check(),
    "tags": lambda table: list(table.tags),
    "time travel": lambda table: table.as_of(version=table.version).to_arrow(),
}
CHANGES: dict[str, Callable[[mw.Table], object]] = {
    "UPDATE": lambda table: sql(table, "UPDATE t SET words = 'new' WHERE id < 3"),
    "OVERWRITE": lambda table: sql(table, "INSERT OVERWRITE t SELECT * FROM t WHERE id > 5"),
    "upsert": lambda table: written(table, 14, 5, "new"),
    "merge": lambda table: table.merge(),
    "create_index": lambda table: table.create_index("id", "BTREE", name="i", replace=True),
    "drop_index": lambda table: table.drop_index("of_words"),
    "build_indexes": lambda table: table.build_indexes(),
    "compact": lambda table: (table.merge(), table.compact()),
    "snapshot_regions": lambda table: table.snapshot_regions(),
    "checkpoint": lambda table: table.checkpoint("now"),
    "drop_checkpoint": lambda table: table.drop_checkpoint("kept"),
    "collect_garbage": lambda table: table.collect_garbage(older_than=NOW, versions_older_than=NOW),
    "create a tag": lambda table: table.tags.create("new", table.version),
    "delete a tag": lambda table: table.tags.delete("old"),
    "restore": lambda table: table.restore(checkpoint="kept"),
    "add_columns": lambda table: table.add_columns(pa.field("more", pa.int32())),
    "drop_columns": lambda table: table.drop_columns("words"),
    "rename_column": lambda table: table.rename_column("words", "texts"),
    "set_nullable": lambda table: table.set_nullable("n"),
}
# What changes the rows, or their columns.
VISIBLE = {
    "UPDATE",
    "OVERWRITE",
    "upsert",
    "restore",
    "add_columns",
    "drop_columns",
    "rename_column",
    "set_nullable",
}
CALLS = READS | CHANGES


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Refuser, dict[str, str]]]:
    refuser = Refuser()
    with s3_server(BUCKET, around=refuser.around) as options:
        yield refuser, {**options, "client_max_retries": "3"}


def made(options: dict[str, str]) -> str:
    """A table with rows in the base, in two generations and in the log."""
    uri = f"s3://{BUCKET}/{uuid4().hex}"
    table = mw.create_table(uri, SCHEMA, primary_key="id", storage_options=options)
    written(table, 0, 10, "first")
    table.merge()
    table.create_index("words", "FTS", name="of_words")
    table.checkpoint("kept")
    table.tags.create("old", table.version)
    written(table, 5, 10, "second")
    written(table, 12, 5, "third")
    return uri


def copied(template: str) -> str:
    """A copy of a table, made inside the server: making a table takes many requests."""
    uri = f"s3://{BUCKET}/{uuid4().hex}"
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    old, new = (one.removeprefix(f"s3://{BUCKET}/") for one in (template, uri))
    for name, key in list(backend.get_bucket(BUCKET).keys.items()):
        if name.startswith(f"{old}/"):
            backend.copy_object(key, BUCKET, new + name.removeprefix(old))
    return uri


class Run:
    """One call by a process of its own, with so many requests let through; `used` of them."""

    def __init__(self, served: tuple[Refuser, dict[str, str]], name: str, uri: str) -> None:
        self._refuser, self._options = served
        self._name = name
        self.uri = uri
        self.used = 0

    def call(self, requests: int = MOST_REQUESTS) -> None:
        with as_another_process():
            self._refuser.left = requests
            try:
                CALLS[self._name](mw.open_table(self.uri, storage_options=self._options))
            finally:
                self.used = requests - self._refuser.left
                self._refuser.left = EVERY_REQUEST

    def refused(self, place: int) -> MemWalError | None:
        """The call, refused from a request on: it fails as it should, or needs no more."""
        try:
            self.call(place)
        except MemWalError as error:
            return error
        except BaseException as error:
            raise AssertionError(f"{self._name}, refused from request {place} on") from error
        return None

    def seen(self) -> pa.Table:
        """The rows as another process sees them, in order of their keys."""
        with as_another_process():
            table = mw.open_table(self.uri, storage_options=self._options)
            return table.to_arrow().sort_by("id").combine_chunks()


@pytest.fixture(scope="module")
def template(served: tuple[Refuser, dict[str, str]]) -> str:
    return made(served[1])


@each("name", usual([*READS], 3))
def test_a_read_whose_requests_are_refused_says_so(
    served: tuple[Refuser, dict[str, str]], no_pauses: None, template: str, name: str
) -> None:
    run = Run(served, name, template)
    run.call()
    assert 0 < run.used < MOST_REQUESTS
    for place in _places(name, run.used):
        run.refused(place)


@each("name", usual([*CHANGES], 5))
def test_a_change_whose_requests_are_refused_says_so(
    served: tuple[Refuser, dict[str, str]],
    no_pauses: None,
    template: str,
    within: Callable[[AbstractContextManager[None]], None],
    name: str,
) -> None:
    within(ReadWindow.set(seconds=0.0))
    first = Run(served, name, copied(template))
    before = first.seen()
    first.call()
    assert 0 < first.used < MOST_REQUESTS
    after = first.seen()
    assert (after != before) == (name in VISIBLE)
    for place in _places(name, first.used):
        run = Run(served, name, copied(template))
        failed = run.refused(place)
        seen = run.seen()
        assert seen in (before, after), place
        if isinstance(failed, mw.StoreUnavailableError | ConflictError):
            assert seen == before, f"{failed!r}: but it was written"
        with suppress(mw.InvalidCallError):  # it was done
            run.call()
        assert run.seen() == after, place


def _places(name: str, requests: int) -> Iterable[int]:
    places = range(requests)
    return places if IS_SOAK else Random(crc32(name.encode())).sample(places, 1)
