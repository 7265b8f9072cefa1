"""Counters of the node that runs, from wherever the work is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol


class Counters(Protocol):
    """The metrics of a node."""

    def add(self, **counts: int) -> None:
        """Add to the counters named."""


class _Running(threading.local):
    """The node that this thread runs."""

    counters: Counters | None = None


running = _Running()


def count(**counts: int) -> None:
    """Add to the counters of the node that this thread runs, if any."""
    if running.counters is not None:
        running.counters.add(**counts)


def lance_reads() -> Callable[[Any], None] | None:
    """A `scan_stats_callback` for a scanner of Lance that counts the reads of the scan.

    Counts lance_requests and lance_bytes of the store, and the fragments, indexes and partitions of
    indexes that were read; reads from Lance's cache cost neither.
    """
    counters = running.counters
    if counters is None:
        return None

    def add(read: Any) -> None:
        counts = {
            "lance_fragments": read.all_counts.get("fragments_scanned", 0),
            "indexes_loaded": read.indices_loaded,
            "partitions_probed": read.all_counts.get("partitions_searched", 0),
            "index_comparisons": read.index_comparisons,
        }
        some = {name: number for name, number in counts.items() if number}
        counters.add(lance_requests=read.requests, lance_bytes=read.bytes_read, **some)

    return add
