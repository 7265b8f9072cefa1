"""`python -m benchmarks.size`: how much code there is, and how much of it an operation needs.

Lines of code are those of the sources without blank lines, comments, docstrings and imports. An
operation's calls are traced when it is warm: functions, files and classes of this package that its
thread has run in. A class counts where one of its own methods has run.
"""

from __future__ import annotations

import ast
import io
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import datafusion
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import memwal_sql as mw

ROOT = Path(__file__).parent.parent
LAYERS = ("memwal_sql", "planner", "exec_nodes", "memwal_cli", "pyspark_memwal", "jvm")
_WARM = 4
_DIMENSION = 8
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int64()),
        pa.field("body", pa.string()),
        pa.field("v", pa.list_(pa.float32(), _DIMENSION)),
    ]
)
_MERGE = (
    "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n "
    "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)"
)


def lines_of_code(source: str) -> int:
    """The lines of a Python file without blank ones, comments, docstrings and imports."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


_BLANK = frozenset(
    (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, 0)
)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def by_folder(root: Path) -> dict[str, tuple[int, int]]:
    """All lines, and those of code, of each folder's Python files and of the folders in it."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(root.rglob("*.py")):
        if "proto_gen" in path.parts:
            continue
        source = path.read_text()
        folder = "/".join(path.relative_to(ROOT).parts[:2])
        name = folder if (ROOT / folder).is_dir() else root.name
        lines, code = found.get(name, (0, 0))
        found[name] = lines + source.count("\n"), code + lines_of_code(source)
    return found


def operations(folder: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The operations by name, over a table of 2,000 rows in a base table, generations and
    MemTables of two regions."""
    path, regions = f"{folder}/t", [mw.bucket("id", 2)]
    table = mw.create_table(path, _SCHEMA, primary_key="id", regions=regions)
    with table.writer(memtable_age_s=None) as writer:
        writer.upsert(_rows(range(1500)))
        writer.flush()
        table.merge()
        writer.upsert(_rows(range(1500, 1900)))
        writer.flush()
        writer.upsert(_rows(range(1900, 2000)))
        ctx = datafusion.SessionContext()
        mw.register(ctx, "t", table)
        ctx.from_arrow(pa.table({"id": [3, 999_999], "n": [1, 2]}), "s")
        new = _rows(range(2000, 2001))

        def transaction() -> None:
            with mw.transaction(table) as tx:
                tx.upsert(table, new)

        def merge() -> None:
            writer.upsert(new)
            writer.flush()

        yield "upsert", lambda: writer.upsert(new)
        yield "upsert, set", lambda: writer.upsert({"id": [3]}, set={"n": "t.n + 1"})
        yield "transaction", transaction
        yield "SQL UPDATE", lambda: mw.sql(ctx, "UPDATE t SET n = n + 1 WHERE id = 3")
        yield "SQL MERGE", lambda: mw.sql(ctx, _MERGE)
        yield "SQL INSERT", lambda: mw.sql(ctx, "INSERT INTO t (id, n) VALUES (5, 1)")
        yield "SQL lookup", lambda: mw.sql(ctx, "SELECT * FROM t WHERE id = 3").to_pylist()
        yield "host's lookup", lambda: ctx.sql("SELECT * FROM t WHERE id = 3").to_pylist()
        yield "get", lambda: table.get(3)
        yield "scan", lambda: table.scan().read_all()
        yield "vector search", lambda: table.vector_search("v", [1.0] * _DIMENSION, 5)
        yield "full-text search", lambda: table.full_text_search("body", "word3", 5)
        merge()
        yield "merge", table.merge
        yield "compact", table.compact


def _rows(keys: Iterable[int]) -> pa.Table:
    ids = list(keys)
    columns = {
        "id": ids,
        "n": ids,
        "body": [f"word{key % 7} text {key}" for key in ids],
        "v": [[float(key * place % 11) for place in range(_DIMENSION)] for key in ids],
    }
    return pa.table(columns, _SCHEMA)


def touched(call: Callable[[], Any]) -> Mapping[str, int]:
    """How many calls of this package's Python a call makes in its thread, and of how many
    functions, files and classes."""
    calls: Counter[tuple[str, str]] = Counter()
    roots = tuple(f"{ROOT / layer}/" for layer in LAYERS)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(roots):
            calls[code.co_filename, code.co_qualname] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    classes = {name.partition(".")[0] for _, name in calls if _is_class(name)}
    return {
        "calls": calls.total(),
        "functions": len(calls),
        "files": len({file for file, _ in calls}),
        "classes": len(classes),
    }


def _is_class(name: str) -> bool:
    first, dot, _ = name.partition(".")
    return bool(dot) and first.lstrip("_")[:1].isupper()


def main() -> None:
    """Print both tables."""
    console = Console()
    code = Table("folder", "lines", "code", title="Lines of Python")
    for layer in (*LAYERS, "tests"):
        folders = by_folder(ROOT / layer)
        for name, (lines, of_code) in folders.items():
            if layer != "tests":
                code.add_row(name, f"{lines:,}", f"{of_code:,}")
        lines, of_code = (sum(numbers) for numbers in zip(*folders.values(), strict=True))
        code.add_row(f"all of {layer}", f"{lines:,}", f"{of_code:,}", style="bold")
    console.print(code)
    of_calls = Table("operation", "calls", "functions", "files", "classes", title="A warm call")
    with tempfile.TemporaryDirectory() as folder:
        for name, call in operations(folder):
            for _ in range(0 if name in ("merge", "compact") else _WARM):
                call()
            of_calls.add_row(name, *(f"{number:,}" for number in touched(call).values()))
    console.print(of_calls)


if __name__ == "__main__":
    main()
