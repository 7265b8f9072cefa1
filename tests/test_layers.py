"""Who may import whom: memwal_sql -> planner -> exec_nodes, and nothing points back up: no circle
among files, none among folders, and no folder with more files than one finds a way in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = {
    "memwal_native": frozenset[str](),
    "exec_nodes": frozenset({"memwal_native"}),
    "planner": frozenset({"memwal_native", "exec_nodes"}),
    "memwal_sql": frozenset({"memwal_native", "exec_nodes", "planner"}),
    "memwal_cli": frozenset(),
}
OURS = frozenset(LAYERS) | {"tests", "demo", "benchmarks"}
FILES = sorted(
    path.relative_to(ROOT)
    for layer in LAYERS
    for path in (ROOT / layer).rglob("*.py")
    if "proto_gen" not in path.parts
)
MODULES = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
MOST_FILES = 20


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


def imported_modules(path: Path) -> Iterator[str]:
    """Our modules that a file imports, those for types alone too."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom):
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else str(node.module) for name in inner)


EDGES = [
    (path, MODULES[name]) for path in FILES for name in imported_modules(path) if name in MODULES
]


def room(path: Path) -> str:
    """The folder of a file; a file right in a package is a room of its own."""
    return str(path.parent if len(path.parts) > 2 else path)


def circle(edges: Iterable[tuple[str, str]]) -> object:
    graph: dict[str, set[str]] = {}
    for user, used in edges:
        if user != used:
            graph.setdefault(user, set()).add(used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def test_circles_are_found() -> None:
    assert circle([("a", "b"), ("b", "c"), ("c", "a")]) is not None


def test_no_files_import_one_another() -> None:
    assert circle((str(user), str(used)) for user, used in EDGES) is None


def test_no_folders_import_one_another() -> None:
    assert circle((room(user), room(used)) for user, used in EDGES) is None


def test_a_folder_has_few_files() -> None:
    trees = [*LAYERS, "tests", "benchmarks", "demo"]
    folders = [f for tree in trees for f in [ROOT / tree, *(ROOT / tree).rglob("*/")]]
    many = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := sum(file.name != "__init__.py" for file in folder.glob("*.py"))) > MOST_FILES
    }
    assert many == {}


def patched(tree: ast.AST) -> Iterator[str]:
    """The names that a test replaces: by `setattr(of, name, ...)`, `patch.object(of, name)` or
    `patch("of.name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("setattr", "patch", "patch.object")
        ):
            yield from (
                arg.value.rpartition(".")[2]
                for arg in node.args[:2]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda p: p.stem)
def test_thresholds_and_executors_are_not_patched(path: Path) -> None:
    """A test sets thresholds by `Thresholds.set`, what runs in the background by `background_by`,
    and begins with an empty store by `another_store`."""
    names = set(patched(ast.parse(path.read_text())))
    assert {n for n in names if n.isupper()} | names & {
        "in_background",
        "map_concurrently",
    } == set()


# Words that the field has others for: see the glossary in ARCHITECTURE.
RETIRED = frozenset(
    {"box", "boxes", "breathe", "floor", "floors", "held", "loose"}
    | {"rehearsal", "settled", "sound", "told", "worn"}
)
LIBRARIES = {("literals.py", "floor")}  # math.floor


def names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name


@pytest.mark.parametrize("path", FILES, ids=str)
def test_names_are_words_of_the_field(path: Path) -> None:
    found = {path.stem, *names(ast.parse((ROOT / path).read_text()))}
    words = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in found}
    retired = {
        name
        for name, parts in words.items()
        if RETIRED.intersection(parts.split("_")) or "at_once" in parts
    }
    assert retired - {name for file, name in LIBRARIES if file == path.name} == set()
