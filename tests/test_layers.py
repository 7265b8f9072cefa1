"""Who may import whom: memwal_sql -> planner -> exec_nodes, and nothing points back up: no circle
among files, none among folders at any depth, and no folder with too many files. The native crate
has no circles either.

Each rule is one test, whose failure lists all files that break it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAYERS = {
    "memwal_native": frozenset[str](),
    "exec_nodes": frozenset({"memwal_native"}),
    "planner": frozenset({"memwal_native", "exec_nodes"}),
    "memwal_sql": frozenset({"memwal_native", "exec_nodes", "planner"}),
    "memwal_cli": frozenset(),
    "pyspark_memwal": frozenset({"memwal_sql"}),
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


@functools.cache
def nodes_of(path: Path) -> Sequence[ast.AST]:
    """The nodes of a file's syntax tree, parsed when a test needs it: each worker imports this
    module."""
    return tuple(ast.walk(ast.parse((ROOT / path).read_text())))


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield str(node.module)


def packages(path: Path) -> set[str]:
    """The packages that a file imports."""
    return {name.partition(".")[0] for name in imports(nodes_of(path))}


def test_a_file_imports_only_layers_below_its_own() -> None:
    above = {
        str(path): packages(path) & OURS - LAYERS[path.parts[0]] - {path.parts[0]} for path in FILES
    }
    assert {path: names for path, names in above.items() if names} == {}


def inner_imports(nodes: Iterable[ast.AST]) -> Iterator[int]:
    """The lines of imports inside functions."""
    for function in nodes:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno


# A process that opens a table and gets a key needs none of what these import where they call it:
# tests/test_loaded.py.
LAZY = {
    "memwal_sql/read/live/image.py",  # plans of scans
    "memwal_sql/read/snapshots.py",  # texts and vectors
    "memwal_sql/table/table.py",  # the subject of each method
    "planner/regions/expression.py",  # DataFusion
}


def test_imports_stand_at_the_top_of_their_file() -> None:
    others = [path for path in FILES if str(path) not in LAZY]
    assert [f"{path}:{line}" for path in others for line in inner_imports(nodes_of(path))] == []


def test_datafusion_is_used_by_sql_only_and_never_by_nodes() -> None:
    using = [path for path in FILES if "datafusion" in packages(path)]
    assert [str(path) for path in using if path.parts[0] == "exec_nodes"] == []


def imported_modules(path: Path) -> Iterator[str]:
    """Our modules that a file imports, those for types alone too."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in MODULES else str(node.module) for name in inner)


@functools.cache
def edges() -> list[tuple[Path, Path]]:
    """Each of our files with each that it imports."""
    named = ((path, name) for path in FILES for name in imported_modules(path))
    return [(path, MODULES[name]) for path, name in named if name in MODULES]


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
    assert circle((str(user), str(used)) for user, used in edges()) is None


def test_no_folders_import_one_another() -> None:
    assert circle((room(user), room(used)) for user, used in edges()) is None


def siblings(user: Path, used: Path) -> tuple[str, str]:
    """The folders or files in which two paths part."""
    depth = next(n for n, (a, b) in enumerate(zip(user.parts, used.parts, strict=False)) if a != b)
    return str(Path(*user.parts[: depth + 1])), str(Path(*used.parts[: depth + 1]))


def test_siblings_part_where_their_paths_do() -> None:
    user, used = Path("a/b/c/x.py"), Path("a/d/y.py")
    assert siblings(user, used) == ("a/b", "a/d")


def test_no_folders_import_one_another_with_all_below_them() -> None:
    arrows = {siblings(user, used) for user, used in edges() if user != used}
    assert circle(arrows) is None


CRATE = Path("native/src")
# Matches a path of the crate, and the names in braces after it, if any.
RUST_PATH = re.compile(r"\bcrate((?:::\w+)+)(?:::\{([^;]*)\};)?")


@functools.cache
def rust_files() -> dict[tuple[str, ...], Path]:
    """The files of the native crate, by the names of their modules."""
    paths = [path.relative_to(ROOT) for path in (ROOT / CRATE).rglob("*.rs")]
    names = {path: path.relative_to(CRATE).with_suffix("").parts for path in paths}
    return {
        parts[:-1] if parts[-1] in ("mod", "lib") else parts: path for path, parts in names.items()
    }


def rust_uses(text: str) -> Iterator[Path]:
    """The files of the modules that a Rust text names from the root of the crate."""
    for path, group in RUST_PATH.findall(text):
        prefix = tuple(path.split("::")[1:])
        for name in re.findall(r"\w+(?:::\w+)*", group) or [""]:
            parts = (*prefix, *name.split("::"))
            while parts not in rust_files():
                parts = parts[:-1]
            yield rust_files()[parts]


def rust_edges() -> list[tuple[Path, Path]]:
    """Each file of the native crate with each that it uses."""
    files = rust_files().values()
    return [(path, used) for path in files for used in rust_uses((ROOT / path).read_text())]


def test_a_rust_file_uses_modules_alone_and_in_braces() -> None:
    text = """
        use crate::sql::reader::{Parsed, Reader};
        use crate::live::{
            CHUNK, rows::Rows,
        };
        fn shown() -> crate::leaf::Shown {}
    """
    used = ["sql/reader.rs", "sql/reader.rs", "live/mod.rs", "live/rows.rs", "leaf.rs"]
    assert list(rust_uses(text)) == [CRATE / name for name in used]


def test_no_rust_files_use_one_another() -> None:
    assert circle((str(user), str(used)) for user, used in rust_edges()) is None


def test_no_rust_folders_use_one_another() -> None:
    assert circle((str(user.parent), str(used.parent)) for user, used in rust_edges()) is None


def test_a_folder_has_few_files() -> None:
    trees = [*LAYERS, "tests", "benchmarks", "demo"]
    folders = [f for tree in trees for f in [ROOT / tree, *(ROOT / tree).rglob("*/")]]
    many = {
        str(folder.relative_to(ROOT)): count
        for folder in folders
        if (count := sum(file.name != "__init__.py" for file in folder.glob("*.py"))) > MOST_FILES
    }
    assert many == {}


EXECUTORS = {"in_background", "map_concurrently"}


def patched(tree: ast.AST) -> Iterator[str]:
    """The names that a test replaces: by `setattr(of, name, ...)`, `patch.object(of, name)` or
    `patch("of.name")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _replaces(node.func):
            yield from (
                arg.value.rpartition(".")[2]
                for arg in node.args[:2]
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
            )


def _replaces(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(attr="object", value=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.endswith("patch")
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name.endswith(("setattr", "patch"))
    return False


def test_thresholds_and_executors_are_not_patched() -> None:
    """A test sets thresholds by `Thresholds.set`, what runs in the background by `background_by`,
    and begins with an empty store by `another_store`."""
    offenders = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        if "patch" not in text and "setattr" not in text:
            continue
        names = set(patched(ast.parse(text)))
        if wrong := {n for n in names if n.isupper()} | names & EXECUTORS:
            offenders[str(path.relative_to(ROOT))] = wrong
    assert offenders == {}


# Words that the field has others for: see the glossary in ARCHITECTURE.
RETIRED = frozenset(
    {"box", "boxes", "breathe", "floor", "floors", "held", "look"}
    | {"loose", "rehearsal", "settled", "sound", "told", "worn"}
)
# Words that say nothing of the thing. These rooms still have some of them.
VAGUE = frozenset({"anew", "beside", "wanted"})
VAGUE_ROOMS = ("memwal_sql/session/",)
# Locals and arguments that do not name their contents; these rooms have none of them.
VAGUE_LOCALS = frozenset({"found", "given", "kept", "known", "one", "said", "there", "wanted"})
CLEAR_ROOMS = ("memwal_sql/read/", "memwal_sql/session/", "memwal_sql/table/")
LIBRARIES = {("literals.py", "floor")}  # math.floor


def names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name) | ast.Name(id=name):
                yield name


def retired(path: Path) -> set[str]:
    """The names of a file that have a retired word in them."""
    banned = RETIRED if str(path).startswith(VAGUE_ROOMS) else RETIRED | VAGUE
    found = {path.stem, *names(nodes_of(path))}
    words = {name: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in found}
    return {
        name
        for name, parts in words.items()
        if (banned.intersection(parts.split("_")) or "at_once" in parts)
        and (path.name, name) not in LIBRARIES
    }


def test_names_are_words_of_the_field() -> None:
    assert {str(path): names for path in FILES if (names := retired(path))} == {}


def locals_of(nodes: Iterable[ast.AST]) -> set[str]:
    """The names of a file's variables and arguments."""
    named = [node for node in nodes if isinstance(node, ast.Name | ast.arg)]
    return {node.id if isinstance(node, ast.Name) else node.arg for node in named}


def test_names_of_locals_say_what_they_hold() -> None:
    rooms = [path for path in FILES if str(path).startswith(CLEAR_ROOMS)]
    vague = {str(path): locals_of(nodes_of(path)) & VAGUE_LOCALS for path in rooms}
    assert {path: names for path, names in vague.items() if names} == {}


def test_the_name_one_is_out_of_use() -> None:
    assert {str(path) for path in FILES if "one" in names(nodes_of(path))} == set()
