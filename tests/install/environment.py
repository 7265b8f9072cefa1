"""An empty virtual environment that holds a wheel and what the wheel declares, nothing else.

Nothing is downloaded: the distributions of the environment that runs the tests are linked into the
new one, those that the wheel's metadata names and those that they name in turn. pip then installs
the wheel without an index, and so refuses what is missing or has another version.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.soak import IS_SOAK

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment's folder."""

    path: Path

    @property
    def packages(self) -> Path:
        """The folder of its packages."""
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.path)}))

    def run(self, *command: str, folder: Path, **variables: str) -> str:
        """The standard output of a program of the environment, run in `folder`.

        It finds neither Rust nor the checkout, nor Java's home, nor anything of the user's.
        """
        name, *arguments = command
        finished = subprocess.run(
            [self.path / "bin" / name, *arguments],
            cwd=folder,
            env=self.variables(folder) | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    def variables(self, folder: Path) -> dict[str, str]:
        """The environment variables of its programs."""
        path = os.pathsep.join([str(self.path / "bin"), os.defpath])
        return {"HOME": str(folder), "PATH": path, "LC_ALL": "C.UTF-8"}


def path_without_java(folder: Path) -> str:
    """A `PATH` with all programs of this machine but Java, which are linked into `folder`."""
    folder.mkdir()
    for programs in os.environ["PATH"].split(os.pathsep):
        for program in Path(programs).glob("*"):
            link = folder / program.name
            if program.name != "java" and program.is_file() and not os.path.lexists(link):
                link.symlink_to(program)
    return str(folder)


def build_wheel(folder: Path) -> Path:
    """A wheel in `folder`. A soak compiles the library, as `make wheel` does, in three minutes of
    processor time; else the wheel has the library that `make setup` compiled."""
    if not IS_SOAK:
        return _assembled_wheel(folder)
    command = [sys.executable, "-m", "maturin", "build", "--release", "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, env=build_variables(), check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _assembled_wheel(folder: Path) -> Path:
    """The packages as maturin is told of them, with the metadata that maturin writes."""
    asked = ["write-dist-info", "--metadata-directory", str(folder), "--interpreter"]
    command = [sys.executable, "-m", "maturin", "pep517", *asked, sys.executable]
    subprocess.run(command, cwd=ROOT, env=build_variables(), check=True, capture_output=True)
    (info,) = folder.glob("*.dist-info")
    (tag,) = re.findall(r"^Tag: (\S+)$", (info / "WHEEL").read_text(), re.MULTILINE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for root, package in [*((ROOT, one) for one in settings["python-packages"]), (folder, info)]
        for path in sorted((root / package).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    record = "".join(
        f"{name},sha256={urlsafe_b64encode(sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in files.items()
    )
    wheel = folder / f"{info.stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info.name}/RECORD", f"{record}{info.name}/RECORD,,\n")
    return wheel


def build_variables() -> dict[str, str]:
    """Those of the Makefile: the folder of the Rust build, and where rustup puts programs."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = os.environ.get("CARGO_TARGET_DIR") or f"{cache}/memwal_sql/target"
    path = os.pathsep.join([os.environ["PATH"], str(Path.home() / ".cargo" / "bin")])
    return {**os.environ, "CARGO_TARGET_DIR": target, "PATH": path}


def make_environment(folder: Path, wheel: Path, extras: Sequence[str] = ()) -> Environment:
    """A new environment in `folder` with `wheel`, these extras of it, and what they declare."""
    venv.create(folder, symlinks=True)
    made = Environment(folder)
    for distribution in closure(requirements(wheel), extras).values():
        link(distribution, made.packages)
    wanted = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
    finished = subprocess.run(
        [*pip, "install", "--quiet", "--no-index", wanted],
        env={**variables, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return made


def requirements(wheel: Path) -> list[str]:
    """What the wheel's metadata requires."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    return HeaderParser().parsestr(text).get_all("Requires-Dist", [])


def closure(required: Sequence[str], extras: Sequence[str]) -> dict[str, metadata.Distribution]:
    """The installed distributions that are required, and those that they require, by name."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(_applying(required, extras))
    seen = set()
    while waiting:
        one = waiting.pop()
        key = (one.name, frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        distribution = metadata.distribution(one.name)
        found[distribution.name] = distribution
        waiting += _applying(distribution.requires or (), one.extras)
    return found


def _applying(required: Sequence[str], extras: Iterator[str] | Sequence[str]) -> list[Requirement]:
    environments = [{"extra": extra} for extra in ("", *extras)]
    parsed = map(Requirement, required)
    return [
        one for one in parsed if one.marker is None or any(map(one.marker.evaluate, environments))
    ]


def link(distribution: metadata.Distribution, packages: Path) -> None:
    """Link a distribution's files into another folder of packages, but for its programs."""
    for file in distribution.files or ():
        if ".." not in file.parts:
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(distribution.locate_file(file))
