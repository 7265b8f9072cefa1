"""Scripts that end while a flush, a job or a call is under way, each to the end of an interpreter.

`python -m tests.write.ending_child FOLDER KIND` runs one. Without a kind each runs in a fork of a
process that has imported the packages, which takes longest, and the exit codes are printed.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import memwal_sql as mw
from exec_nodes.base.threads import AtExit
from memwal_sql.cli.metrics import serve_metrics
from memwal_sql.errors import StoreUnavailableError
from memwal_sql.maintain.loop import run_jobs_forever
from memwal_sql.state.generation_writer import GenerationWriter
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.write.options import STATEMENT_WRITERS, WriterOptions
from tests.model.small_rows import SCHEMA, make_rows

ROWS, PIECE = 80, 20
PIECES = [make_rows(*range(start, start + PIECE)) for start in range(0, ROWS, PIECE)]
OPEN: list[object] = []  # to the end, as the variables of a script


def table_in(folder: str) -> mw.Table:
    return mw.create_table(f"{folder}/table", SCHEMA, "id", "bucket(id, 2)")


def written(folder: str) -> mw.Table:
    """A table with all rows, whose writer is open and flushes."""
    table = table_in(folder)
    writer = table.writer(memtable_rows=PIECE // 2)
    OPEN.append(writer)
    upsert_all(writer)
    return table


def with_sql(folder: str) -> mw.SessionContext:
    STATEMENT_WRITERS.options = WriterOptions(memtable_rows=PIECE)
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table_in(folder))
    return ctx


def by_sql(folder: str) -> None:
    ctx = with_sql(folder)
    for start in range(0, ROWS, PIECE):
        ctx.sql(
            f"INSERT INTO t SELECT value, 1, 'x', 0.5 FROM range({start}, {start + PIECE})"
        ).collect()


def by_transactions(folder: str) -> None:
    ctx = with_sql(folder)
    for start in range(0, ROWS, PIECE):
        ctx.sql("BEGIN")
        ctx.sql(f"INSERT INTO t SELECT value, 1, 'x', 0.5 FROM range({start}, {start + PIECE})")
        ctx.sql("COMMIT")


def upsert_all(writer: mw.TableWriter) -> None:
    for rows in PIECES:
        writer.upsert(rows)


def buffered(folder: str) -> None:
    OPEN.append(writer := table_in(folder).writer(durable=False))
    upsert_all(writer)


def buffered_by_nobody(folder: str) -> None:
    upsert_all(table_in(folder).writer(durable=False, wal_flush_interval_s=0.01))
    gc.collect()


def closed_at_the_exit(folder: str) -> None:
    writer = table_in(folder).writer(durable=False, memtable_rows=PIECE)
    atexit.register(writer.close)
    upsert_all(writer)


def flushed_at_the_exit(folder: str) -> None:
    writer = table_in(folder).writer(durable=False)
    atexit.register(writer.flush)
    upsert_all(writer)


def buffered_at_the_exit(folder: str) -> None:
    table = table_in(folder)
    atexit.register(lambda: upsert_all(table.writer(durable=False)))


def written_at_the_exit(folder: str) -> None:
    table = table_in(folder)
    atexit.register(lambda: upsert_all(table.writer(memtable_rows=PIECE)))


def with_jobs(folder: str) -> None:
    table = written(folder)
    triggers, stop = mw.Triggers(merge_generations=1), threading.Event()
    jobs = threading.Thread(
        target=lambda: run_jobs_forever(table, triggers, interval=0, stop=stop), daemon=True
    )
    jobs.start()
    time.sleep(0.05)


def with_coroutines(folder: str) -> None:
    async def main() -> None:
        table = await mw.aio.create_table(f"{folder}/table", SCHEMA, "id", "bucket(id, 2)")
        writer = await table.writer(memtable_rows=PIECE // 2)
        OPEN.append(writer)
        await asyncio.gather(*(writer.upsert(rows) for rows in PIECES))
        asyncio.get_running_loop().create_task(writer.flush())
        await asyncio.sleep(0)  # the loop ends without it

    asyncio.run(main())


def with_metrics(folder: str) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    serve_metrics(address)
    written(folder)


def with_a_thread(folder: str) -> None:
    threading.Thread(target=written, args=(folder,)).start()


def with_searches(folder: str) -> None:
    table = written(folder)
    table.flush()
    table.merge()
    OPEN.append(table.scan().read_all())


def raises(folder: str) -> None:
    written(folder)
    raise ZeroDivisionError("of the script")


def exits_with_3(folder: str) -> None:
    written(folder)
    sys.exit(3)


def interrupted(folder: str) -> None:
    written(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    for rows in PIECES * 1000:
        OPEN[0].upsert(rows)  # type: ignore[attr-defined]


def hangs(*_: object, **__: object) -> None:
    time.sleep(3600)


def with_a_hanging_flush(folder: str) -> None:
    OPEN.extend([one := AtExit.set(patience_s=0.2), one.__enter__()])
    OPEN.extend([other := patch.object(GenerationWriter, "_write", hangs), other.start()])
    written(folder)


def with_a_hanging_log(folder: str) -> None:
    OPEN.extend([one := AtExit.set(patience_s=0.2), one.__enter__()])
    upsert_all(table_in(folder).writer(durable=False, wal_flush_interval_s=3600))
    OPEN.extend([other := patch.object(LocalStore, "put_if_absent", hangs), other.start()])


def with_a_refused_log(folder: str) -> None:
    upsert_all(table_in(folder).writer(durable=False, wal_flush_interval_s=3600))
    refused = StoreUnavailableError("the disk is full")
    OPEN.extend([one := patch.object(LocalStore, "put_if_absent", side_effect=refused)])
    one.start()


KINDS: dict[str, tuple[Callable[[str], object], int]] = {
    "SQL": (by_sql, 0),
    "transactions": (by_transactions, 0),
    "upserts": (written, 0),
    "buffered": (buffered, 0),
    "buffered by nobody": (buffered_by_nobody, 0),
    "close at the exit": (closed_at_the_exit, 0),
    "flush at the exit": (flushed_at_the_exit, 0),
    "buffered at the exit": (buffered_at_the_exit, 0),
    "written at the exit": (written_at_the_exit, 0),
    "jobs": (with_jobs, 0),
    "coroutines": (with_coroutines, 0),
    "metrics": (with_metrics, 0),
    "thread": (with_a_thread, 0),
    "searches": (with_searches, 0),
    "exception": (raises, 1),
    "exit": (exits_with_3, 3),
    "Ctrl-C": (interrupted, -signal.SIGINT),
}
LEFT: dict[str, tuple[Callable[[str], object], int]] = {
    "hanging flush": (with_a_hanging_flush, 75),
    "hanging log": (with_a_hanging_log, 75),
    "refused log": (with_a_refused_log, 75),
}


def main(folder: str, *kinds: str) -> None:
    if kinds:
        (KINDS | LEFT)[kinds[0]][0](folder)
        return
    gc.freeze()  # what was imported is not looked at when a fork ends
    children: dict[str, int] = {}
    for kind, (script, _) in (KINDS | LEFT).items():
        own = Path(folder) / kind
        own.mkdir()
        if not (child := os.fork()):
            with open(own / "stderr", "w", encoding="utf-8") as errors:
                os.dup2(errors.fileno(), 2)
            script(str(own))
            return
        children[kind] = child
        if len(children) % 2 == 0:  # a few side by side
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    codes = {
        kind: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for kind, child in children.items()
    }
    sys.stdout.write(json.dumps(codes))


if __name__ == "__main__":
    main(*sys.argv[1:])
