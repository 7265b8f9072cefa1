"""English text that every machine has: docstrings of Python's standard library and of the packages
that this project needs, and the topics of Python's own help.

Sources are parsed, never imported, so that nothing of them runs.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa

PACKAGES = ("datafusion", "lance", "numpy", "pyarrow")
_NOT_DOCUMENTED = frozenset(
    {"encodings", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tests"}
)
_SHORTEST = 30

FEW_MODULES = frozenset(
    {"argparse", "asyncio", "bz2", "calendar", "datetime", "email", "fnmatch", "gzip", "json"}
    | {"logging", "lzma", "queue", "re", "shutil", "tarfile", "threading", "unittest", "zipfile"}
)
"""Enough of them for every example to find something."""

TEXTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("module", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("length", pa.int32()),
        pa.field("text", pa.string()),
    ]
)
"""`id` is a dotted name; `kind` is module, class, function or topic; `length` counts characters."""


def load_documents(only: Collection[str] | None = None) -> pa.Table:
    """Every document, one row an id, ordered by it; `only` names top-level modules to read."""
    entries = {f"topic.{name}": ("topics", "topic", text) for name, text in topics.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others' sources are warned of
        for module, path in _sources(only):
            for name, kind, text in _docstrings(module, path):
                entries.setdefault(name, (module, kind, text))
    ids = sorted(entries)
    modules, kinds, texts = zip(*(entries[name] for name in ids), strict=True)
    lengths = [len(text) for text in texts]
    return pa.table([ids, modules, kinds, lengths, texts], schema=TEXTS)


def _sources(only: Collection[str] | None) -> Iterator[tuple[str, Path]]:
    """The modules by name: the standard library's first, in the order of their names."""
    for module, path in _below(Path(sysconfig.get_path("stdlib")), ""):
        if only is None or module.partition(".")[0] in only:
            yield module, path
    for package in PACKAGES:
        if only is not None and package not in only:
            continue
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            yield from _below(Path(folder), package)


def _below(folder: Path, package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.iterdir()):
        name = f"{package}.{path.stem}" if package else path.stem
        if path.name in _NOT_DOCUMENTED or path.name.startswith(("_", ".")):
            continue
        if path.is_dir() and (path / "__init__.py").exists():
            yield name, path / "__init__.py"
            yield from _below(path, name)
        elif path.suffix == ".py":
            yield name, path


def _docstrings(module: str, path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates of code are not code
        return
    stack: list[tuple[str, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]
    stack = [(module, tree)]
    while stack:
        name, node = stack.pop()
        text = ast.get_docstring(node)
        if text is not None and len(text) >= _SHORTEST:
            yield name, _kind(node), text
        if isinstance(node, ast.Module | ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    stack.append((f"{name}.{child.name}", child))


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Module):
        return "module"
    return "class" if isinstance(node, ast.ClassDef) else "function"
