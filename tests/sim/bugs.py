"""Puts bugs of the table of mutants into a copy of the code, and says how soon a run fails.

python -m tests.sim.bugs [id ...]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.__main__ import Copy
from tests.mutants.table import Mutant, mutants

BUGS = (
    "W02",
    "W04",
    "W09",
    "R02",
    "R07",
    "W15",
    "W28",
    "R03",
    "X16",
    "W01",
    "T20",
    "T21",
    "T24",
    "T25",
)
_SECONDS = 300


def outcome(folder: Path, mutant: Mutant) -> str:
    """What the simulation says of the copy in `folder` with this fault."""
    path = folder / mutant.file
    original = path.read_text()
    path.write_text(str(mutant.changed))
    try:
        run = subprocess.run(
            [sys.executable, "-B", "-m", "tests.sim", "--seconds", str(_SECONDS)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(original)
    if run.returncode == 0:
        return f"not found: {run.stdout.strip()}"
    errors = re.findall(r"^\w[\w.]*Error\b.*", run.stderr, re.MULTILINE) or ["?"]
    return f"{run.stdout.strip()} {errors[-1][:100]}"


def main(names: list[str]) -> None:
    table = mutants()
    with TemporaryDirectory(prefix="sim-") as folder:
        Copy(Path(folder))
        for name in names or BUGS:
            print(f"{name}: {table[name].change}", flush=True)
            print(f"     {outcome(Path(folder), table[name])}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
