"""Applies one mutant after the other to a copy of the code, and runs the tests that must notice it.

    python -m tests.mutants [id ...]

Prints what has become of each, of all by default, and ends with 1 if a test did not fail that must.
A mutant is killed by a test that fails or hangs; an error while tests are collected, and a name
that the changed code does not have, show a mistake in the table.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.table import ROOT, Mutant, mutants

_PACKAGES = ("exec_nodes", "planner", "memwal_native", "memwal_sql", "memwal_cli", "pyspark_memwal")
_COPIED = (*_PACKAGES, "tests", "docs", "pyproject.toml")
_TEST_SECONDS = 100
_MOST_SECONDS = 1800
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)(?: - (.*))?", re.MULTILINE)
_MISTAKES = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")


class Copy:
    """A copy of the packages and of the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in _COPIED:
            if (ROOT / name).is_file():
                shutil.copy2(ROOT / name, folder)
            else:
                ignore = shutil.ignore_patterns("*.so")
                shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        for library in ROOT.glob("memwal_native/*.so"):
            (folder / "memwal_native" / library.name).symlink_to(library.resolve())
        files = ", ".join(f"{name}.__file__" for name in _PACKAGES)
        code = f"import {', '.join(_PACKAGES)}; print({files})"
        places = self._python("-c", code).stdout.split()
        if not places or any(not place.startswith(str(folder)) for place in places):
            raise RuntimeError(f"the packages are imported from {places}, not from {folder}")

    def fate(self, mutant: Mutant) -> tuple[str, str]:
        """What becomes of a mutant, and which test says so."""
        changed, path = mutant.changed, self._folder / mutant.file
        if changed is None:
            return "does not apply", ""
        original, status = path.read_bytes(), path.stat()
        path.write_text(changed)
        try:
            # The bytecode of a changed file must not outlive the change.
            fate, detail = self.result(mutant.tests, PYTHONDONTWRITEBYTECODE="1")
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # bytecode goes by it
        if fate == "survived" and mutant.equivalent:
            return "equivalent", mutant.equivalent
        return fate, detail

    def result(self, tests: Iterable[str], **environment: str) -> tuple[str, str]:
        """What tests say of the code as it is in the copy: `survived` where all of them pass."""
        try:
            run = self._python(
                *("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
                f"--timeout={_TEST_SECONDS}",
                *(f"tests/{test}" for test in tests),
                **environment,
            )
        except subprocess.TimeoutExpired:
            return "has no end", f"within {_MOST_SECONDS} s"
        failed = _FAILED.search(run.stdout)
        if run.returncode == 0:
            return "survived", ""
        # A process of tests ends with 75 if a failed one has left rows that can't be written.
        if run.returncode not in (1, os.EX_TEMPFAIL) or failed is None:
            return "is not run", f"pytest ended with {run.returncode}: {run.stdout[-400:]}"
        fate = "mistake" if (failed[2] or "").startswith(_MISTAKES) else "killed"
        return fate, f"{failed[1]} - {failed[2]}"[:150]

    def _python(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": str(self._folder), "COLUMNS": "250"}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self._folder,
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
        )


def main(names: list[str]) -> int:
    """Run the mutants with these names, or all."""
    table = mutants()
    if unknown := [name for name in names if name not in table]:
        print(f"there are no mutants {unknown}; there are {list(table)}")
        return 2
    chosen = {name: table[name] for name in names or table}
    fates = Counter[str]()
    begun = time.monotonic()
    with TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        unchanged = copy.result(dict.fromkeys(test for m in chosen.values() for test in m.tests))
        if unchanged[0] != "survived":
            print("the tests must pass without a mutant:", *unchanged)
            return 2
        for name, mutant in chosen.items():
            since = time.monotonic()
            fate, detail = copy.fate(mutant)
            fates[fate] += 1
            print(f"{name:5} {fate:10} {time.monotonic() - since:4.0f} s  {detail}", flush=True)
            if fate not in ("killed", "equivalent"):
                print(f"      {mutant.file}: {mutant.change}", flush=True)
    print(*(f"{count} {fate}" for fate, count in fates.most_common()), sep=", ", end="")
    print(f" in {time.monotonic() - begun:.0f} s")
    return int(fates.total() > fates["killed"] + fates["equivalent"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
