"""Tables that this process has opened: Spark keeps its Python workers, and they keep these.

Planning, tasks and commits run in worker processes that live on between calls, so what can't change
(keys, bloom filters, stale sets, listed regions) is read once a process and not once a task.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from functools import cache, lru_cache

from pyspark import SparkContext

from memwal_sql.create import open_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.pinned import PinnedTable
from memwal_sql.spark.options import Moment, Options
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.table import Table

_KEPT = 16
Storage = tuple[tuple[str, str], ...]

_KEPT_WORKER = "SPARK_REUSE_WORKER"
_NEEDED = ("memwal_sql", "memwal_native", "datafusion", "lance")
_FIND = f"""
from importlib.util import find_spec
print(*[name for name in {_NEEDED} if find_spec(name) is None])
"""


def table_of(options: Options) -> Table:
    """The table of the options, as they say that it was, or with its current columns. Raises what
    `open_table` raises."""
    at = options.uri, options.storage, _incarnation(options)
    version, timestamp = options.moment
    if isinstance(version, str):  # a name may be given to another state
        return _opened(*at, (version, timestamp))
    table = _table(*at, (version, timestamp))
    if table.newest_of is not None:
        table.refresh()
    return table


def pinned_table_of(options: Options) -> PinnedTable:
    """Rebuilds pinned snapshots of the options' table."""
    return _pinned(options.uri, options.storage, _incarnation(options))


def _incarnation(options: Options) -> str:
    """Tells a table from one that was at the same place before."""
    record = read_record(open_store(options.uri, options.storage_options))
    return "" if record is None else str(record.incarnation)


def _opened(uri: str, storage: Storage, incarnation: str, moment: Moment) -> Table:
    del incarnation
    version, timestamp = moment
    table = open_table(uri, version, dict(storage) or None, timestamp=timestamp)
    settle_worker()
    return table


_table = lru_cache(_KEPT)(_opened)


@lru_cache(_KEPT)
def _pinned(uri: str, storage: Storage, incarnation: str) -> PinnedTable:
    return _table(uri, storage, incarnation, (None, None)).pinned_table()


def check_workers(context: SparkContext) -> None:
    """Raise InvalidCallError when Spark's interpreter for workers is another one and lacks this
    package. The interpreters of other machines can't be checked here."""
    python = context.pythonExec
    if shutil.which(python) == sys.executable or context.listFiles:
        return  # or modules may be sent along
    try:
        finished = subprocess.run(  # noqa: S603 (it is what Spark runs)
            [python, "-c", _FIND], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return  # Spark says why it can't run it
    lacking = finished.stdout.split()
    if lacking:
        raise InvalidCallError(
            f"Spark runs Python workers with {python!r}, which lacks {', '.join(lacking)}: stop "
            "the session, set the environment variable PYSPARK_PYTHON to an interpreter that has "
            f"memwal-sql[spark], such as {sys.executable!r}, and make the session again"
        )


@cache
def settle_worker() -> None:
    """Take the objects that are loaded out of garbage collection, in a worker that Spark keeps.

    After every call to such a worker Spark collects all garbage. That looks at each object of the
    modules that are loaded: 0.1 s of a processor, for every task and thrice in planning and
    committing, while the first rows are already on their way. Modules stay anyhow.
    """
    if _KEPT_WORKER in os.environ:
        gc.freeze()
