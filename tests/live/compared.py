"""Counts the states of tables whose live rows were compared with the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from exec_nodes.live.checked_live_exec import CheckedLiveExec
from exec_nodes.live.live_rows_exec import LiveRowsExec
from planner.model import LiveTable


class Compared:
    """The number of `queries` that were compared, and the `states` that they had, each once."""

    def __init__(self) -> None:
        self.queries = 0
        self.states: dict[int, object] = {}


@contextmanager
def compared() -> Iterator[Compared]:
    """Count those of this process, meanwhile."""
    count, scan, check = Compared(), LiveTable.scan, CheckedLiveExec._check
    of_scans: dict[int, tuple[object, object]] = {}

    def scanned(live: LiveTable, *args: Any) -> Any:
        rows = scan(live, *args)
        of_scans[id(rows)] = rows, live.state
        return rows

    def checked(node: CheckedLiveExec, *args: Any) -> None:
        check(node, *args)
        assert isinstance(node.live, LiveRowsExec)
        _, state = of_scans[id(node.live.rows)]
        count.states[id(state)] = state
        count.queries += 1

    with patch.object(LiveTable, "scan", scanned), patch.object(CheckedLiveExec, "_check", checked):
        yield count
