"""A process that exits while a daemon thread queries; `python -m tests.sql.exiting_child HOW`."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import datafusion
import numpy as np
import pyarrow as pa

from exec_nodes.node import Node
from memwal_native import MountedTable
from tests.sql.fakes import NodeProvider, Rows

SCHEMA = pa.schema([("id", pa.int64())])
BATCH = pa.record_batch([pa.array(range(100))], SCHEMA)


@dataclass(frozen=True)
class Endless(Rows):
    """Is nearly always in Python code, in a thread that Python has not made. Its batches are
    memory of Python's, which DataFusion's threads let go of."""

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        RUNNING.set()
        while True:
            sum(range(2000))
            time.sleep(0.0005)
            numbers = pa.py_buffer(np.arange(1000, dtype="int64"))
            column = pa.Array.from_buffers(pa.int64(), 1000, [None, numbers])
            yield pa.record_batch([column], self.sch)


RUNNING = threading.Event()


def query(node: Node) -> None:
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(node)))
    context.sql("SELECT id % 7, sum(id) FROM t GROUP BY id % 7").collect()


def start_queries() -> None:
    """Daemon threads that query without an end."""
    node = Endless(SCHEMA, ((BATCH,), (BATCH,)))
    for _ in range(2):
        threading.Thread(target=query, args=(node,), daemon=True).start()
    RUNNING.wait()


def main(how: str) -> None:
    if how.endswith("in a fork"):
        if how.startswith("busy"):  # other threads are in calls, which the fork has not
            start_queries()
        forked = os.fork()
        if forked:
            _, status = os.waitpid(forked, 0)
            os._exit(abs(os.waitstatus_to_exitcode(status)))
        if how.startswith("busy"):
            return  # it has no runtime to query by
    start_queries()
    if how == "after another interpreter":
        name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
        interpreters = importlib.import_module(name)
        other = interpreters.create()
        interpreters.run_string(
            other, f"import sys; sys.path[:0] = {sys.path}; import memwal_native"
        )
        interpreters.destroy(other)
        query(Rows(SCHEMA, ((BATCH,),)))  # the end of that one was not ours
    time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1])
