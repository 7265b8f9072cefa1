"""What a process loads that opens a table and gets a key. Most of its time is that: each module of
ours takes about a millisecond."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import memwal_sql as mw
from tests.model.small_rows import make_rows

# Two more than were counted; the whole package has twice as many.
_MOST = 223
# Packages that it does not need, nor these parts of ours.
_NEVER = (
    *("datafusion", "rich", "typer"),
    *("memwal_sql.statements", "memwal_sql.session", "memwal_sql.maintain.merge"),
    *("memwal_sql.write.table_writer", "planner.plan", "planner.search", "exec_nodes.text"),
)
_PROGRAM = """
import sys
import memwal_sql as mw
assert mw.open_table(sys.argv[1]).get(2).num_rows == 1
print(*sys.modules)
"""


def test_a_process_that_gets_a_key_loads_what_that_needs(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", make_rows().schema, "id")
    with table.writer() as writer:
        writer.upsert(make_rows(1, 2, 3))
    command = [sys.executable, "-c", _PROGRAM, table.uri]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    names = done.stdout.split()
    needless = [name for name in names if name.startswith(_NEVER)]
    assert needless == []
    ours = [name for name in names if name.startswith(("exec_nodes", "planner", "memwal_sql"))]
    assert len(ours) <= _MOST


def test_names_that_are_folders_too_are_the_functions() -> None:
    """Whatever is imported first."""
    program = """
import memwal_sql as mw
import memwal_sql.history.tables, memwal_sql.catalog.folder, memwal_sql.transaction.begin
assert all(map(callable, (mw.history, mw.catalog, mw.transaction)))
import memwal_sql.transactions
assert all(map(callable, (mw.history, mw.catalog, mw.transaction)))
assert {"aio", "sql", "open_table"} <= set(dir(mw))
import importlib
importlib.reload(mw)
assert all(map(callable, (mw.history, mw.catalog, mw.transaction)))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
