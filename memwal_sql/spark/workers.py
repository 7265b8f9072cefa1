"""Spark's Python workers: processes that live on from call to call."""

from __future__ import annotations

import gc
import os
from functools import cache

_KEPT_WORKER = "SPARK_REUSE_WORKER"


@cache
def settle_worker() -> None:
    """Take what is loaded by now out of garbage collection, in a worker that Spark keeps.

    After every call to such a worker Spark collects all garbage. That looks at each object of the
    modules that are loaded: 0.1 s of a processor, for every task and thrice in planning and
    committing, while the first rows are already on their way. Modules stay anyhow.
    """
    if _KEPT_WORKER in os.environ:
        gc.freeze()
