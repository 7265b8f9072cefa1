"""Jobs give way to readers and writers of the machine: a merge can take longer, a query can't."""

from __future__ import annotations

import os

from memwal_native import take_long_turns

# Lance's threads for decoding, joining and building indexes; it is read when they are started.
THREADS_VARIABLE = "LANCE_CPU_THREADS"
_NICENESS = 10


def give_way() -> None:
    """Make this process and the threads that it starts from now on a background job: of lower
    priority, interrupted by whoever wakes up, and with half of the processors for Lance unless the
    environment says otherwise."""
    take_long_turns(os.nice(_NICENESS))
    os.environ.setdefault(THREADS_VARIABLE, str(max(1, (os.cpu_count() or 1) // 2)))
