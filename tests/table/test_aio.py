"""`mw.aio`: the same calls as coroutines, none of which keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import aio
from tests.docs.test_manual import documented

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64()})
ROOT = Path(mw.__file__).parent.parent
OURS = tuple(f"{ROOT / name}/" for name in ("exec_nodes", "planner", "memwal_sql"))
REQUESTS = 100
# Members without a coroutine; `asyncio.to_thread(table.blocking.tags.create, ...)` makes any call.
LEFT_OUT = {"tags", "to_dataset"}

Message = Mapping[str, Any]


def ours_on_this_thread(code: Any) -> bool:
    return code.co_filename.startswith(OURS) and code.co_filename != aio.__file__


@contextmanager
def noted() -> Iterator[set[str]]:
    """The functions of ours that this thread calls, apart from the coroutines themselves."""
    names: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and ours_on_this_thread(frame.f_code):
            names.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    gc.disable()  # it ends generators on any thread
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(before)
        gc.enable()


def service(table: aio.Table, writer: aio.TableWriter, ctx: Any) -> Callable[..., Any]:
    """An ASGI application: PUT and GET of rows, a query, a scan and the feed."""

    async def answer(scope: Message, body: bytes) -> Any:
        match scope["method"], *scope["path"].strip("/").split("/"):
            case "PUT", "rows":
                return (await writer.upsert([json.loads(body)])).rows
            case "DELETE", "rows", key:
                return (await writer.delete([int(key)])).rows
            case "GET", "rows", key:
                return (await table.get(int(key))).to_pylist()
            case "GET", "sum":
                rows = await aio.sql(ctx, "SELECT sum(n) AS s FROM t WHERE id < $most", most=10)
                return rows.to_pylist()
            case "GET", "scan":
                return sum([batch.num_rows async for batch in table.scan(["id"], "n >= 0")])
            case "GET", "changes":
                return sum([batch.num_rows async for batch in table.changes()])
            case "POST", "flush":
                return await table.flush()
        raise AssertionError(scope)

    async def application(scope: Message, receive: Any, send: Any) -> None:
        text = json.dumps(await answer(scope, (await receive())["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    return application


async def request(application: Any, method: str, path: str, body: object = None) -> Any:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message: Message) -> None:
        sent.append(message)

    await application({"type": "http", "method": method, "path": path}, receive, send)
    assert sent[0]["status"] == 200
    return json.loads(sent[1]["body"])


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_service_under_load_does_all_its_work_off_the_loop(tmp_path: Path) -> None:
    ctx = datafusion.SessionContext()

    async def main() -> None:
        async with aio.create_table(tmp_path / "t", SCHEMA, "id", "bucket(id, 2)") as table:
            await asyncio.to_thread(mw.register, ctx, "t", table.blocking)
            async with table.writer() as writer:
                asgi = service(table, writer, ctx)
                puts = [
                    request(asgi, "PUT", "/rows", {"id": n, "n": n * n}) for n in range(REQUESTS)
                ]
                assert await asyncio.gather(*puts) == [1] * REQUESTS
                gets = [request(asgi, "GET", f"/rows/{n}") for n in range(REQUESTS)]
                others = [
                    request(asgi, *words)
                    for words in [
                        ("GET", "/sum"),
                        ("POST", "/flush"),
                        ("GET", "/scan"),
                        ("GET", "/changes"),
                        ("DELETE", "/rows/-5"),
                    ]
                    for _ in range(10)
                ]
                answers = await asyncio.gather(*gets, *others)
                rows = [[{"id": n, "n": n * n}] for n in range(REQUESTS)]
                assert answers[:REQUESTS] == rows
                assert answers[REQUESTS : REQUESTS + 10] == [[{"s": 285}]] * 10
                assert set(answers[REQUESTS + 20 : REQUESTS + 30]) == {REQUESTS}
                assert min(answers[REQUESTS + 30 : REQUESTS + 40]) >= REQUESTS

    with noted() as names:
        run(main())
    assert names == set()


def test_what_runs_on_the_loop_would_be_noted(tmp_path: Path) -> None:
    with noted() as names:
        mw.create_table(tmp_path / "t", SCHEMA, "id")
    assert "create_table" in names


def test_the_calls_of_tables_and_writers_are_coroutines() -> None:
    for name, coroutines in (("Table", aio.Table), ("TableWriter", aio.TableWriter)):
        members = {member for member in documented()[name] if not hasattr(coroutines, member)}
        assert members <= LEFT_OUT, members


def test_handles_open_and_close_and_raise_what_calls_raise(tmp_path: Path) -> None:
    async def main() -> None:
        table = await aio.create_table(tmp_path / "t", SCHEMA, "id")
        with pytest.raises(mw.InvalidCallError, match="nothing"):
            await table.get(1, ["nothing"])
        with pytest.raises(mw.InvalidCallError, match="nothing"):
            async for _ in table.scan(["nothing"]):
                pass
        with pytest.raises(ZeroDivisionError):
            async with table.writer() as writer:
                await writer.upsert({"id": [1], "n": [1]})
                raise ZeroDivisionError
        assert writer.closed
        version = await table.snapshot_regions()
        async with await table.writer() as writer:
            await writer.delete(1)
        async with table.as_of(version) as past, aio.open_table(table.uri) as same:
            assert (past.version, past.schema.names, same.primary_key) == (
                version,
                ["id", "n"],
                ("id",),
            )
            assert await past.count_rows() == 0 and await same.count_rows() == 0
        assert repr(table) == f"aio.{table.blocking!r}"
        await aio.drop_table(table.uri)

    run(main())


def test_a_cancelled_call_goes_on_if_it_has_begun(tmp_path: Path) -> None:
    begun, released = Event(), Event()

    def batches() -> Iterator[pa.RecordBatch]:
        begun.set()
        released.wait()
        yield pa.RecordBatch.from_pylist([{"id": 1, "n": 1}], SCHEMA)

    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with aio.create_table(tmp_path / "t", SCHEMA, "id") as table:
            writer = await table.writer()
            tasks = [asyncio.ensure_future(writer.upsert(batches()))]
            while not begun.is_set():
                await asyncio.sleep(0)
            tasks.append(asyncio.ensure_future(writer.upsert({"id": [2], "n": [2]})))
            await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            released.set()
            await writer.close()
            assert (await table.to_arrow())["id"].to_pylist() == [1]

    run(main())
