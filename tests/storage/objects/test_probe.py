"""A store that can't put if absent is found out before anything rests on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import StoreUnavailableError, UnsupportedError
from memwal_sql.maintain.gc.listing import survey_files
from memwal_sql.maintain.gc.orphans import orphans
from memwal_sql.storage.objects import probe
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.objects.probe import PROBE_FOLDER, check_put_if_absent
from tests.each import each
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.racing import race
from tests.model.s3 import Application, s3_client, s3_server
from tests.model.writing import flush_rows, session_of, upsert_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
ROWS = {"id": [1, 2], "v": ["a", "b"]}


@dataclass
class Server:
    """An S3 server whose honesty is a switch, and what was asked of it."""

    options: dict[str, str] = field(default_factory=dict)
    honours: bool = True
    implements: bool = True
    requests: list[tuple[str, str]] = field(default_factory=list)

    def around(self, app: Application) -> Application:
        def answer(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            self.requests.append((request["REQUEST_METHOD"], request["PATH_INFO"]))
            if "HTTP_IF_NONE_MATCH" in request and not self.implements:
                start("501 Not Implemented", [("Content-Length", "0")])
                return [b""]
            if not self.honours:
                request.pop("HTTP_IF_NONE_MATCH", None)
            return app(request, start)

        return answer

    def probes(self) -> list[str]:
        """The methods of the requests about a probe's object, less its deletion in bulk."""
        return [method for method, path in self.requests if f"/{PROBE_FOLDER}/" in path]

    def objects(self, uri: str) -> dict[str, str]:
        """The objects below a table, and the digest of each."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        listed = s3_client(self.options).list_objects_v2(Bucket=bucket, Prefix=prefix)
        return {one["Key"]: one["ETag"] for one in listed.get("Contents", ())}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server()
    with s3_server("tables", around=server.around) as options:
        server.options = {**options, "client_max_retries": "0"}
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.honours = running.implements = True
    running.requests.clear()
    return running


@pytest.fixture
def uri() -> str:
    return f"s3://tables/{uuid4().hex}/table"


def make_table(server: Server, uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", storage_options=server.options)
    flush_rows(table, ROWS)
    return table


def forget() -> None:
    """As another process, which has tried nothing yet."""
    probe._proven.clear()


def test_a_table_is_not_made_where_two_writers_would_lose_rows(server: Server, uri: str) -> None:
    server.honours = False
    with pytest.raises(UnsupportedError, match="memwal_commit_log") as caught:
        mw.create_table(uri, SCHEMA, "id", storage_options=server.options)
    assert isinstance(caught.value, mw.InvalidCallError) and uri in str(caught.value)
    assert server.objects(uri) == {}
    lance.write_dataset(pa.table(ROWS, SCHEMA), uri, storage_options=server.options)
    before = server.objects(uri)
    with pytest.raises(UnsupportedError, match="memwal_commit_log"):
        mw.enable(uri, "id", storage_options=server.options)
    assert server.objects(uri) == before


def _insert(table: mw.Table) -> None:
    context = session_of("t", table)
    with mw.memwal_errors():
        context.sql("INSERT INTO t VALUES (3, 'c')").collect()


def _write(table: mw.Table) -> None:
    upsert_rows(table, ROWS)


DECISIONS: dict[str, Callable[[mw.Table], object]] = {
    "writer": _write,
    "insert": _insert,
    "merge": lambda table: table.merge(),
    "snapshot_regions": lambda table: table.snapshot_regions(),
    "checkpoint": lambda table: table.checkpoint("now"),
}


@pytest.mark.slow
def test_whatever_decides_something_finds_out_first_and_readers_do_not_ask(
    server: Server, uri: str
) -> None:
    make_table(server, uri)
    before = server.objects(uri)
    server.honours = False
    forget()
    for name, decide in DECISIONS.items():
        table = mw.open_table(uri, storage_options=server.options)
        with pytest.raises(UnsupportedError, match="memwal_commit_log"):
            decide(table)
        assert server.objects(uri) == before, name
    server.requests.clear()
    table = mw.open_table(uri, storage_options=server.options)
    assert table.scan().read_all().num_rows == 2
    assert table.get([1])["v"].to_pylist() == ["a"]
    assert table.check().findings == ()
    assert server.probes() == []
    assert {method for method, _ in server.requests} <= {"GET", "HEAD"}


def test_it_takes_three_requests_once_a_process_and_place(server: Server, uri: str) -> None:
    make_table(server, uri)
    assert server.probes() == ["PUT", "PUT"]
    forget()
    server.requests.clear()
    for _ in range(2):
        check_put_if_absent(open_store(uri, server.options))
    assert [method for method, _ in server.requests] == ["PUT", "PUT", "POST"]
    assert left(open_store(uri, server.options)) == []


def test_a_store_that_refuses_the_condition_is_told_the_same(server: Server, uri: str) -> None:
    server.implements = False
    with pytest.raises(UnsupportedError, match="memwal_commit_log"):
        mw.create_table(uri, SCHEMA, "id", storage_options=server.options)
    server.implements = True
    options = {**server.options, "aws_conditional_put": "disabled"}
    with pytest.raises(UnsupportedError, match="memwal_commit_log"):
        mw.create_table(uri, SCHEMA, "id", storage_options=options)
    assert server.objects(uri) == {}


# Answers of a store that says little, by fakes over memory.


class Doubted(FaultyStore):
    """A store in memory that is to be tried."""

    honours = True

    def __init__(self, plan: Iterable[Fault] = ()) -> None:
        super().__init__(open_store(f"memory://{uuid4().hex}"), plan)

    @property
    def service(self) -> str:
        return self.uri

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if not self.honours:
            self.put(path, data)
            return True
        return bool(self.__getattr__("put_if_absent")(path, data))


def left(store: ObjectStore) -> list[str]:
    return [meta.path for meta in store.list(PROBE_FOLDER)]


@pytest.mark.parametrize("kind", [Kind.FALSE_EXISTS, Kind.LANDED_EXISTS])
def test_a_first_answer_that_tells_nothing_is_not_held_against_a_store(kind: Kind) -> None:
    store = Doubted([Fault("put_if_absent", kind)])
    assert settle_put(store, "a", b"x") is None
    store.check()
    assert left(store) == []


@each("nth", [1, 2])
@each("kind", [Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY])
def test_a_store_that_can_t_be_asked_is_asked_again_later(nth: int, kind: Kind) -> None:
    store = Doubted([Fault("put_if_absent", kind, nth)])
    with pytest.raises(StoreUnavailableError):
        check_put_if_absent(store)
    store.check()
    assert left(store) == []
    check_put_if_absent(store)


def test_a_probe_that_can_t_be_taken_away_is_garbage_after_an_hour() -> None:
    store = Doubted([Fault("delete", Kind.REFUSED)])
    check_put_if_absent(store)
    [path] = left(store)
    survey = survey_files(store)

    def garbage(now: float) -> list[str]:
        return [one.path for one in orphans(survey, [], now, 0.0)]

    assert garbage(time.time()) == []
    assert garbage(time.time() + timedelta(hours=2).total_seconds()) == [path]


def test_many_threads_ask_once() -> None:
    store = Doubted()
    race(*[partial(check_put_if_absent, store)] * 8)
    assert store.calls["put_if_absent"] == 2


def test_nothing_is_put_where_the_first_put_would_not_be_alone() -> None:
    store = Doubted()
    store.honours = False
    for _ in range(2):  # a refusal is no answer to be kept: the server may be mended
        with pytest.raises(UnsupportedError, match="can't put if absent"):
            settle_put(store, "a", b"x")
    assert not store.exists("a") and left(store) == []
    store.honours = True
    assert settle_put(store, "a", b"x") is None


def test_local_folders_and_memory_are_no_matter_of_trust(tmp_path: Path) -> None:
    for uri in (str(tmp_path), f"memory://{uuid4().hex}"):
        store = FaultyStore(open_store(uri))
        check_put_if_absent(store)
        assert store.calls == {}
