"""Warnings point to the line of the program that caused them, through whatever door it came."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa

import memwal_sql as mw
from tests.test_layers import FILES, ROOT

SCHEMA = pa.schema({"id": pa.int64(), "body": pa.string()})

Call = Callable[[mw.Table, int, datafusion.SessionContext], Any]
CALLS: dict[str, tuple[type[Warning], Call]] = {
    "open_table": (mw.UnrecordedVersionWarning, lambda t, n, ctx: mw.open_table(t.uri, version=n)),
    "as_of": (mw.UnrecordedVersionWarning, lambda t, n, ctx: t.as_of(n)),
    "VERSION AS OF": (
        mw.UnrecordedVersionWarning,
        lambda t, n, ctx: mw.sql(ctx, f"SELECT * FROM t VERSION AS OF {n}").to_pylist(),
    ),
}


def test_a_warning_points_to_the_callers_line(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "body": "snow and ice"}])
        unrecorded = table.version
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    for name, (category, call) in CALLS.items():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call(table, unrecorded, ctx)
        assert {one.category for one in told} == {category}, name
        for one in told:
            assert one.filename == __file__, name
            assert one.lineno in lines_of(call), name
    table.close()


def lines_of(call: Call) -> range:
    first = call.__code__.co_firstlineno
    return range(first, max(line or 0 for *_, line in call.__code__.co_lines()) + 1)


def test_no_file_but_one_warns_by_itself() -> None:
    by_hand = [
        str(path)
        for path in FILES
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    ]
    assert by_hand == ["exec_nodes/base/warning.py"]
