"""Jobs give way to readers and writers of the machine: a merge can take longer, a query can't."""

from __future__ import annotations

import os

from memwal_native import take_long_turns

# Lance's threads for decoding, joining and building indexes; it is read when they are started.
THREADS_VARIABLE = "LANCE_CPU_THREADS"
_NICENESS = 10


def give_way() -> None:
    """Make this process and the threads that it starts from now on a background job: of lower
    priority, interrupted by whoever wakes up, and on half of the processors, unless the environment
    says how many threads Lance shall have.

    A reader's threads wake each other a dozen times a lookup: where a job may be on every
    processor, its 99th percentile is twice as long.
    """
    take_long_turns(os.nice(_NICENESS))
    if THREADS_VARIABLE in os.environ:
        return
    if hasattr(os, "sched_setaffinity"):  # Linux
        own = sorted(os.sched_getaffinity(0))
        half = own[len(own) // 2 :]
        os.sched_setaffinity(0, half)
        count = len(half)
    else:
        count = max(1, (os.cpu_count() or 1) // 2)
    os.environ[THREADS_VARIABLE] = str(count)
