"""The memory of the machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """The bytes that the machine, or its control group, gives the process."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in _LIMITS:
        with suppress(OSError, ValueError):  # "max", or no control groups
            memory = min(memory, int(Path(limit).read_text()))
    return memory
