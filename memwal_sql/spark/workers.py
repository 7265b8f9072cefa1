"""Spark's Python workers: processes that live on from call to call."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from functools import cache

from pyspark import SparkContext

from memwal_sql.errors import InvalidCallError

_KEPT_WORKER = "SPARK_REUSE_WORKER"
_NEEDED = ("memwal_sql", "memwal_native", "datafusion", "lance")
_FIND = f"""
from importlib.util import find_spec
print(*[name for name in {_NEEDED} if find_spec(name) is None])
"""


def check_workers(context: SparkContext) -> None:
    """Raise InvalidCallError when the interpreter that Spark takes for workers is another one and
    lacks this package. Whether those of other machines have it, nobody can say here."""
    python = context.pythonExec
    if shutil.which(python) == sys.executable or context.listFiles:
        return  # or modules may be sent along
    try:
        found = subprocess.run(  # noqa: S603 (it is what Spark runs)
            [python, "-c", _FIND], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return  # Spark says why it can't run it
    lacking = found.stdout.split()
    if lacking:
        raise InvalidCallError(
            f"Spark runs Python workers with {python!r}, which lacks {', '.join(lacking)}: stop "
            "the session, set the environment variable PYSPARK_PYTHON to an interpreter that has "
            f"memwal-sql[spark], such as {sys.executable!r}, and make the session again"
        )


@cache
def settle_worker() -> None:
    """Take what is loaded by now out of garbage collection, in a worker that Spark keeps.

    After every call to such a worker Spark collects all garbage. That looks at each object of the
    modules that are loaded: 0.1 s of a processor, for every task and thrice in planning and
    committing, while the first rows are already on their way. Modules stay anyhow.
    """
    if _KEPT_WORKER in os.environ:
        gc.freeze()
