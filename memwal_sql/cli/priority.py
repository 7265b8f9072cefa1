"""Jobs give way to readers and writers of the machine: a merge can take longer, a query can't."""

from __future__ import annotations

import os

from memwal_native import take_long_turns, take_turns_often

# Lance's threads for decoding, joining and building indexes; it is read when they are started.
THREADS_VARIABLE = "LANCE_CPU_THREADS"
_NICENESS = 10


def give_way() -> None:
    """Make this process and the threads that it starts from now on a background job: of lower
    priority, interrupted by whoever wakes up, and on half of the processors, unless the environment
    says how many threads Lance shall have.

    A reader's threads wake each other a dozen times a query: where a job may be on every processor,
    or runs on until the next tick when they have been interrupted, the 99th percentile of queries
    is twice as long.
    """
    count = os.cpu_count() or 1
    if hasattr(os, "sched_setaffinity"):  # Linux
        own = sorted(os.sched_getaffinity(0))
        count = len(own)
        if THREADS_VARIABLE not in os.environ:
            own = own[count // 2 :]
            os.sched_setaffinity(0, own)
        take_turns_often(own)
    os.environ.setdefault(THREADS_VARIABLE, str((count + 1) // 2))
    take_long_turns(os.nice(_NICENESS))
