"""A store that refuses every request from some moment on, those of Lance too.

Whatever is called, it succeeds or raises an error of ours; afterwards another process sees what
was before or what the call was to make, and the same call succeeds or says why it need not.
`MEMWAL_SOAK=10` refuses from each of the requests on, else from some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from random import Random
from typing import Any
from uuid import uuid4
from zlib import crc32

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

import memwal_sql as mw
from memwal_sql.errors import ConflictError, MemWalError
from memwal_sql.storage.objects.concurrent import ReadWindow
from tests.crash.calls import WORK, Program, State, made, state_of
from tests.each import each
from tests.model.process import as_another_process
from tests.model.s3 import Application, s3_server
from tests.soak import IS_SOAK, usual

BUCKET = "refused"
MOST_REQUESTS = 400  # of one call
EVERY_REQUEST = 1_000_000


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


READS: Mapping[str, Callable[[mw.Table], object]] = {
    "get": lambda table: table.get([1, 12]),
    "scan": lambda table: table.to_arrow(),
    "count": lambda table: table.count_rows("id > 3"),
    "vector search": lambda table: table.vector_search("v", [1.0, 1.0, 2.0, 3.0], 3),
    "text search": lambda table: table.full_text_search("words", "word", 3),
    "changes": lambda table: list(table.changes()),
    "history": lambda table: (table.history(), table.snapshots(), table.files()),
    "regions": lambda table: (table.regions(), table.generations(), table.wal()),
    "indexes": lambda table: table.indexes(),
    "overview": lambda table: table.overview(),
    "check": lambda table: table.check(),
    "tags": lambda table: list(table.tags),
    "time travel": lambda table: table.as_of(version=table.version).to_arrow(),
}
CALLS: Mapping[str, Callable[[Program], object]] = {
    **{name: lambda p, read=read: read(p.table) for name, read in READS.items()},
    **WORK,
}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Refuser, dict[str, str]]]:
    refuser = Refuser()
    with s3_server(BUCKET, around=refuser.around) as options:
        yield refuser, {**options, "client_max_retries": "3"}


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
            program = None
            try:
                program = Program(mw.open_table(self.uri, storage_options=self._options))
                CALLS[self._name](program)
            finally:
                self.used = requests - self._refuser.left
                self._refuser.left = EVERY_REQUEST
                if program is not None:
                    program.close()

    def refused(self, place: int) -> MemWalError | None:
        """The call, refused from a request on: it fails as it should, or needs no more."""
        try:
            self.call(place)
        except MemWalError as error:
            return error
        except BaseException as error:
            raise AssertionError(f"{self._name}, refused from request {place} on") from error
        return None

    def state(self) -> State:
        return state_of(self.uri, self._options)


@pytest.fixture(scope="module")
def template(served: tuple[Refuser, dict[str, str]]) -> str:
    uri = f"s3://{BUCKET}/{uuid4().hex}"
    made(uri, options=served[1])
    return uri


@pytest.fixture(scope="module")
def before(served: tuple[Refuser, dict[str, str]], template: str) -> State:
    return state_of(template, served[1])


@each("name", usual([*READS], 2))
def test_a_read_whose_requests_are_refused_says_so(
    served: tuple[Refuser, dict[str, str]], no_pauses: None, template: str, name: str
) -> None:
    run = Run(served, name, template)
    run.call()
    assert 0 < run.used < MOST_REQUESTS
    for place in _places(name, run.used):
        run.refused(place)


@each("name", usual([*WORK], 3))
def test_a_change_whose_requests_are_refused_says_so(
    served: tuple[Refuser, dict[str, str]],
    no_pauses: None,
    template: str,
    before: State,
    within: Callable[[AbstractContextManager[None]], None],
    name: str,
) -> None:
    within(ReadWindow.set(seconds=0.0))
    first = Run(served, name, copied(template))
    first.call()
    assert 0 < first.used < MOST_REQUESTS
    after = first.state()
    for place in _places(name, first.used):
        run = Run(served, name, copied(template))
        failed = run.refused(place)
        state = run.state()
        assert state in (before, after), place
        if isinstance(failed, mw.StoreUnavailableError | ConflictError):
            assert state == before, f"{failed!r}: but it was written"
        with suppress(mw.InvalidCallError):  # it was done
            run.call()
        assert run.state() == after, place


def _places(name: str, requests: int) -> Iterable[int]:
    places = range(requests)
    return places if IS_SOAK else Random(crc32(name.encode())).sample(places, 1)
