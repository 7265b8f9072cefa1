"""The files: those of DataFusion's crate `datafusion-sqllogictest`, by Apache-2.0, from Cargo."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

_CRATE = "datafusion-sqllogictest-55.2.0"  # what the Python wheel 55.0 is built on
_FOLDER = "test_files"


def unpack(folder: Path) -> Path:
    """Put the crate into a folder, as it lies in DataFusion's repository, where its statements look
    for their files; downloaded by Cargo unless it has it. Returns the crate's folder."""
    with tarfile.open(_downloaded()) as crate:
        crate.extractall(folder / "datafusion", filter="data")
    found = folder / "datafusion" / _CRATE
    (found / _FOLDER / "scratch").mkdir()
    return found


def names(crate: Path) -> list[str]:
    """The files to be run, in a stable order; those that they include are not among them."""
    folder = crate / _FOLDER
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.slt"))


def path_of(crate: Path, name: str) -> Path:
    """Where a file is."""
    return crate / _FOLDER / name


def _downloaded() -> Path:
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    found = list(home.glob(f"registry/cache/*/{_CRATE}.crate"))
    if not found:
        with tempfile.TemporaryDirectory() as elsewhere:  # in a checkout it shows a local crate
            name, _, version = _CRATE.rpartition("-")
            command = ["cargo", "info", "--quiet", f"{name}@{version}"]
            subprocess.run(command, cwd=elsewhere, check=True, capture_output=True)
        found = list(home.glob(f"registry/cache/*/{_CRATE}.crate"))
    return found[0]
