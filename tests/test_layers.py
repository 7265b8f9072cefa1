"""Who may import whom: memwal_sql -> planner -> exec_nodes, and nothing points back up."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "memwal_native": frozenset[str](),
    "exec_nodes": frozenset({"memwal_native"}),
    "planner": frozenset({"memwal_native", "exec_nodes"}),
    "memwal_sql": frozenset({"memwal_native", "exec_nodes", "planner"}),
}
OURS = frozenset(LAYERS) | {"tests", "demo", "benchmarks"}
FILES = sorted(
    path.relative_to(ROOT)
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
    if "proto_gen" not in path.parts
)


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield str(node.module)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_imports_only_layers_below_its_own(path: Path) -> None:
    layer = path.parts[0]
    allowed = LAYERS[layer] | {layer}
    packages = {name.partition(".")[0] for name in imports(ast.parse((ROOT / path).read_text()))}
    assert packages & OURS <= allowed


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_stand_at_the_top_of_their_file(path: Path) -> None:
    tree = ast.parse((ROOT / path).read_text())
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    inner = [
        node.lineno
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert inner == []


def test_datafusion_is_used_by_sql_only_and_never_by_nodes() -> None:
    using = {
        path.parts[0]
        for path in FILES
        if "datafusion"
        in {n.partition(".")[0] for n in imports(ast.parse((ROOT / path).read_text()))}
    }
    assert "exec_nodes" not in using
