"""Jobs give way to readers and writers of the machine: a merge can take longer, a query can't."""

from __future__ import annotations

import os

# Lance's threads for decoding, joining and building indexes; it is read when they are started.
THREADS_VARIABLE = "LANCE_CPU_THREADS"
_NICENESS = 10


def give_way() -> None:
    """Make this process and the threads that it starts from now on a background job: of lower
    priority, and with threads for half of the processors, unless the environment says how many
    Lance shall have."""
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    count = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    os.environ.setdefault(THREADS_VARIABLE, str((count + 1) // 2))
    os.nice(_NICENESS)
