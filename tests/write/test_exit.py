"""What is buffered when a process comes to its end is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import usual

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
BEGIN = """
import atexit, sys, threading
import memwal_sql as mw
table = mw.open_table(sys.argv[1])
rows = [{"id": one, "v": "a"} for one in range(300)]
"""
ENDS = {
    "nothing is closed": "w = table.writer(durable=False); w.upsert(rows)",
    "nobody has the writer": "table.writer(durable=False).upsert(rows)",
    "nobody has the writer of a function": (
        "def write():\n    table.writer(durable=False, wal_flush_interval_s=0.01).upsert(rows)\n"
        "write(); import gc; gc.collect()"
    ),
    "an error": "w = table.writer(durable=False); w.upsert(rows); raise SystemExit(0)",
    "close at the exit": (
        "w = table.writer(durable=False, memtable_rows=100); atexit.register(w.close)\n"
        "[w.upsert(rows[start:start + 100]) for start in (0, 100, 200)]"
    ),
    "flush at the exit": (
        "w = table.writer(durable=False); atexit.register(w.flush); w.upsert(rows)"
    ),
    "all at the exit": "atexit.register(lambda: table.writer(durable=False).upsert(rows))",
    "durable at the exit": "atexit.register(lambda: table.writer().upsert(rows))",
}


def test_no_row_is_lost_at_the_end_of_a_process(tmp_path: Path) -> None:
    children = {}
    for number, (name, code) in enumerate(usual([*ENDS.items()], 3)):
        uri = str(tmp_path / str(number))
        mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 3)] if number % 2 else None)
        command = [sys.executable, "-c", BEGIN + code, uri]
        child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        children[name] = uri, child
    for name, (uri, child) in children.items():
        _, errors = child.communicate(timeout=200)
        assert (child.returncode, errors) == (0, ""), name
        assert mw.open_table(uri).count_rows() == 300, name
