"""`mw.aio`: calls as coroutines, none of which keeps the event loop waiting."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from types import FrameType
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base import threads, transient_threads
from memwal_sql import aio
from tests import program
from tests.docs.pages import page
from tests.docs.test_manual import documented

SCHEMA = pa.schema({"id": pa.int64(), "n": pa.int64()})
ROOT = Path(mw.__file__).parent.parent
OURS = tuple(f"{ROOT / name}/" for name in ("exec_nodes", "planner", "memwal_sql"))
REQUESTS = 100
# Members without a coroutine; `asyncio.to_thread(table.blocking.tags.create, ...)` makes any call.
LEFT_OUT = {"tags", "to_dataset"}

# Calls that read and write no files.
WITHOUT_FILES = {
    *("bucket", "day", "expression", "hour", "identity", "lance_bucket", "manual", "month"),
    *("multi_bucket", "truncate", "unsharded", "year", "configure", "resident", "deadline"),
    *("deregister", "memwal_errors", "register_commit_log"),
}

Message = Mapping[str, Any]


# What hands a call over to a thread.
HAND_OVER = (aio.__file__, threads.__file__, transient_threads.__file__)


def ours_on_this_thread(code: Any) -> bool:
    return code.co_filename.startswith(OURS) and code.co_filename not in HAND_OVER


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


def test_each_public_call_is_a_coroutine_or_said_to_be_none() -> None:
    named = {name for name in mw.__all__ if not hasattr(aio, name) and name != "aio"}
    named = {name for name in named if not isinstance(getattr(mw, name), type)}
    [sentence] = re.findall(r"- No coroutines are (.*?):", page("docs/api/aio.md"), re.DOTALL)
    assert named == set(re.findall(r"`mw\.(\w+)`", sentence)) | WITHOUT_FILES


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
    begun, released = list[int](), Event()

    def batches() -> Iterator[pa.RecordBatch]:
        begun.append(1)
        released.wait()
        yield pa.RecordBatch.from_pylist([{"id": 1, "n": 1}], SCHEMA)

    async def main() -> None:
        async with aio.create_table(tmp_path / "t", SCHEMA, "id") as table:
            writer = await table.writer()
            tasks = [asyncio.ensure_future(writer.upsert(batches())) for _ in range(aio.THREADS)]
            while len(begun) < aio.THREADS:
                await asyncio.sleep(0.001)
            tasks.append(asyncio.ensure_future(writer.upsert({"id": [2], "n": [2]})))
            await asyncio.get_running_loop().getaddrinfo(
                "localhost", 80
            )  # which others' calls need
            for task in tasks:
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            released.set()
            await writer.close()
            assert (await table.to_arrow())["id"].to_pylist() == [1]

    run(main())


def test_a_scan_loses_no_batch_and_no_error_to_a_cancelled_read(tmp_path: Path) -> None:
    taken, read = SimpleQueue[None](), list[int]()

    def batches(_: mw.Table) -> Iterator[pa.RecordBatch]:
        for n in range(3):
            taken.get()
            read.append(n)
            yield pa.record_batch({"n": [n]})
        raise ZeroDivisionError

    class Table(aio.Table):
        waits: Any = aio._stream(batches)

    async def main() -> None:
        scan = Table(mw.create_table(tmp_path / "t", SCHEMA, "id")).waits()
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(scan), 0.001)
        for _ in range(4):
            taken.put(None)
        two = asyncio.gather(anext(scan), anext(scan))
        numbers = [batch["n"][0].as_py() for batch in (*await two, await anext(scan))]
        assert numbers == read == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await anext(scan)

    run(main())


def test_jobs_run_on_a_table_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with aio.create_table(tmp_path / "t", SCHEMA, "id") as table:
            jobs = [job.job for job in await aio.run_all_jobs(table=table)]
            assert jobs == [job.job for job in mw.run_all_jobs(table.blocking)] and jobs

    run(main())


def test_the_end_of_a_process_waits_for_a_call_and_the_end_of_a_loop_does_not(
    tmp_path: Path,
) -> None:
    text = """if True:
        import asyncio, sys, threading
        import pyarrow as pa
        import memwal_sql as mw
        from memwal_sql import aio
        begun, released = threading.Event(), threading.Event()
        def batches():
            begun.set()
            released.wait()
            yield pa.record_batch({"id": [1], "n": [1]})
        async def main():
            table = await aio.open_table(sys.argv[1])
            task = asyncio.ensure_future((await table.writer()).upsert(batches()))
            while not begun.is_set():
                await asyncio.sleep(0.001)
        asyncio.run(main())
        threading.Timer(0.1, released.set).start()
    """
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    done = program.run("-c", text, table.uri)
    assert done.returncode == 0, done.stderr
    assert table.count_rows() == 1
