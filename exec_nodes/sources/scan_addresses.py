"""The row addresses of a scan, without asking Lance for them: they cost as much as a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from exec_nodes.sources.source import RowAddresses

# Asking a fragment for its rows costs as much as the addresses of some 10,000 rows.
_MOST_FRAGMENTS = 32


class ScanAddresses:
    """The addresses of the rows of whole fragments, in the order of a scan."""

    def __init__(self, fragments: Sequence[Any]) -> None:
        self._left = [
            (fragment.fragment_id << 32, fragment.count_rows()) for fragment in reversed(fragments)
        ]

    def next(self, rows: int) -> RowAddresses:
        """Those of the next so many rows."""
        parts = []
        while rows:
            start, count = self._left.pop()
            here = min(rows, count)
            parts.append(np.arange(start, start + here, dtype=np.uint64))
            rows -= here
            if here < count:
                self._left.append((start + here, count - here))
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])


def scan_addresses(dataset: Any, fragments: Sequence[Any] | None = None) -> ScanAddresses | None:
    """Those of a scan of `fragments`, all by default, that leaves no row out.

    None where Lance must be asked: where rows were deleted, or the fragments are many.
    """
    fragments = dataset.get_fragments() if fragments is None else fragments
    if len(fragments) > _MOST_FRAGMENTS or any(one.num_deletions for one in fragments):
        return None
    return ScanAddresses(fragments)
