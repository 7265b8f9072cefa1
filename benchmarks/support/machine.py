"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import statistics
from importlib.metadata import version
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from benchmarks.support.timing import seconds, write_and_sync

_PACKAGES = ("pylance", "pyarrow", "datafusion", "numpy")


def machine_facts(folder: Path) -> dict[str, str]:
    """Processor, memory, disk (one synced 4 KiB write in `folder`), load and versions."""
    return {
        "processor": f"{os.cpu_count()} x {_processor()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "synced write": f"{_sync_seconds(folder) * 1e3:.2f} ms",
        "load": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    } | {name: version(name) for name in _PACKAGES}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), "?")


def _sync_seconds(folder: Path) -> float:
    def write(number: int) -> float:
        path = folder / f"sync-{number}"
        taken = seconds(lambda: write_and_sync(path, bytes(4096)))
        path.unlink()
        return taken

    return statistics.median(write(number) for number in range(9))
