"""A process that exits while a daemon thread queries; `python -m tests.sql.exiting_child HOW`."""

from __future__ import annotations

import atexit
import importlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import datafusion
import pyarrow as pa

import memwal_native
from exec_nodes.node import Node
from memwal_native import MountedTable
from tests.sql.fakes import NodeProvider, Rows

SCHEMA = pa.schema([("id", pa.int64())])
BATCH = pa.record_batch([pa.array(range(100))], SCHEMA)


@dataclass(frozen=True)
class Endless(Rows):
    """Is nearly always in Python code, in a thread that Python has not made."""

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        RUNNING.set()
        while True:
            sum(range(2000))
            time.sleep(0.0005)
            yield BATCH


RUNNING = threading.Event()


def query(node: Node) -> None:
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(NodeProvider(node)))
    for _ in context.sql("SELECT * FROM t"):
        pass


def main(how: str) -> None:
    if how == "without waiting":
        atexit.unregister(memwal_native.shut_down)
    node = Endless(SCHEMA, ((BATCH,), (BATCH,)))
    for _ in range(2):
        threading.Thread(target=query, args=(node,), daemon=True).start()
    RUNNING.wait()
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
