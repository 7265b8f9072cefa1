"""How long the path of an operation is, and that it asks once for the newest base version."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from benchmarks.calls import calls, table_in_use
from benchmarks.support.sizes import SMALL
from benchmarks.support.workspace import Workspace
from memwal_sql.state.base_table import BaseTracker


def test_an_operation_calls_no_more_functions_than_it_did(tmp_path: Path) -> None:
    """The count is the same each time. What needs more calls raises the bound, and says why."""
    with Workspace(tmp_path, SMALL) as work:
        for result in calls(work):
            assert result.reach is not None and result.reach.ok, result


def test_a_query_asks_once_for_the_newest_base_version(tmp_path: Path) -> None:
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
            assert asked == (0 if name.startswith("upsert") else 1), name
