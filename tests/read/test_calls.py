"""How long the path of an operation is: how many functions of ours it calls, and that it asks once
for the newest base version. All is warm; the calling thread alone is counted, so of SQL mostly its
planning."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import datafusion
import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import Ids
from benchmarks.support.texts import documents
from exec_nodes.base.tasks import background_by
from memwal_sql.state.base_table import BaseTracker

_ROOT = Path(mw.__file__).parent.parent
_OURS = tuple(f"{_ROOT / name}/" for name in ("exec_nodes", "planner", "memwal_sql"))
# Python 3.12 makes no calls of these any more.
_INLINED = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})

_BASE_ROWS, _NEWER_ROWS, _DIMENSIONS = 2_500, 50, 16
_COLUMNS = ["id", "val", "body"]
# So many times each is done before it is counted, and counted: what is done now and then, as
# looking for a newer version behind Lance's cleanup, is in few of them.
_WARM_UP, _COUNTED = 40, 5
# A tenth more than were counted. What needs more calls raises the bound, and says why: what a read
# asks of a region is an object, as its questions go side by side with others on an object store; a
# write asks at each request for its deadline, and a search for the analyzers of what its filters
# match. A scan reads Lance in another thread, where no signal handler runs. The unflushed rows of
# several regions are closed over transactions, and a write notices that its turn has ended. It also
# looks whether the base table was replaced. Columns are compared by their ids where they are looked
# at again. A read asks whether its rows are live.
_MOST: Mapping[str, int] = {
    "SELECT with a filter": 312,
    "table.scan with a filter": 488,
    "SELECT by key": 205,
    "get in the base": 121,
    "get of a list of one": 121,
    "get in a generation": 123,
    "get in a MemTable": 79,
    "vector_search": 558,
    "full_text_search": 488,
    "hybrid_search": 979,
    "upsert of one row": 335,
}


@contextmanager
def table_in_use(folder: Path) -> Iterator[Mapping[str, Callable[[], Any]]]:
    """Operations on a table in `folder` of two regions, each with a generation and a MemTable above
    the base table."""
    lance.write_dataset(_rows(np.arange(_BASE_ROWS, dtype=np.int64), 1), folder)
    table = mw.enable(folder, primary_key="id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer, background_by(lambda call: call()):
        writer.upsert(_rows(np.arange(0, 10 * _NEWER_ROWS, 10, dtype=np.int64), 2))
        writer.flush()
        writer.upsert(_rows(np.arange(1, 10 * _NEWER_ROWS, 10, dtype=np.int64), 3))
        context = datafusion.SessionContext()
        mw.register(context, "events", table)
        yield _operations(table, writer, context)


def _operations(
    table: mw.Table, writer: Any, context: datafusion.SessionContext
) -> Mapping[str, Callable[[], Any]]:
    vector = np.full(_DIMENSIONS, 0.5, np.float32)
    one = _rows(np.array([7], np.int64), 4)
    in_base, in_generation, in_memtable = 1234, 20, 21

    def select(condition: str) -> pa.Table:
        statement = f"SELECT id, val, body FROM events WHERE {condition}"
        return context.sql(statement).to_arrow_table()

    return {
        "SELECT with a filter": lambda: select("val > 0.5"),
        "table.scan with a filter": lambda: table.scan(_COLUMNS, "val > 0.5").read_all(),
        "SELECT by key": lambda: select(f"id = {in_base}"),
        "get in the base": lambda: table.get(in_base),
        "get of a list of one": lambda: table.get([in_base]),
        "get in a generation": lambda: table.get(in_generation),
        "get in a MemTable": lambda: table.get(in_memtable),
        "vector_search": lambda: table.vector_search("v", vector, columns=_COLUMNS),
        "full_text_search": lambda: table.full_text_search("body", "w5x w9x", columns=_COLUMNS),
        "hybrid_search": lambda: table.hybrid_search(
            "v", vector, "body", "w5x w9x", columns=_COLUMNS
        ),
        "upsert of one row": lambda: writer.upsert(one),  # the last, as the MemTable grows
    }


def function_calls(operation: Callable[[], Any]) -> int:
    """Of functions of ours, generators each time they went on."""
    called = 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal called
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_OURS) and code.co_name not in _INLINED:
            called += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(before)
    return called


def _rows(ids: Ids, seed: int) -> pa.Table:
    """Rows of a key, a number, a text and a vector."""
    random = np.random.default_rng(seed)
    numbers = pa.array(random.random(len(ids) * _DIMENSIONS, np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, _DIMENSIONS)
    return (
        documents(ids, seed)
        .append_column("val", pa.array(random.random(len(ids))))
        .append_column("v", vectors)
    )


def test_an_operation_calls_no_more_functions_than_it_did(tmp_path: Path) -> None:
    """The count is the same each time."""
    with table_in_use(tmp_path / "t") as operations:
        for name, operation in operations.items():
            for _ in range(_WARM_UP):
                operation()
            found = min(function_calls(operation) for _ in range(_COUNTED))
            assert found <= _MOST[name], (name, found)


def test_an_operation_asks_once_for_the_newest_base_version(tmp_path: Path) -> None:
    asked = 0
    is_replaced = BaseTracker.is_replaced

    def counted(tracker: BaseTracker, version: int) -> bool:
        nonlocal asked
        asked += 1
        return is_replaced(tracker, version)

    with (
        table_in_use(tmp_path / "t") as operations,
        patch.object(BaseTracker, "is_replaced", counted),
    ):
        for name, operation in operations.items():
            asked = 0
            operation()
            assert asked == 1, name
