"""Vectors in memory, and which of them are those of rows that count."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.live_rows import live_rows
from exec_nodes.sources.source import RowAddresses, Source
from exec_nodes.vectors.column import Flags, VectorColumn


@dataclass(frozen=True)
class HeldVectors:
    """A MemTable's vectors, or those of all rows of some fragments of a Lance table: any version
    may have only some of these fragments, and may have deleted rows of them.

    Attributes:
        fragments: how many rows each fragment has, in the order of the vectors; empty for a
            MemTable.
    """

    vectors: VectorColumn
    fragments: Mapping[Hashable, int] = field(default_factory=dict)

    def live(self, source: Source, mask: RowAddresses) -> Flags | None:
        """By position, whether `source` has the row, and `mask`, sorted, has not; None if all
        count."""
        here, unmasked = self._present(source), live_rows(self.vectors.addresses, mask)
        if here is None or unmasked is None:
            return unmasked if here is None else here
        return here & unmasked

    def among(self, rows: RowAddresses) -> Flags:
        """By position, whether the row is among these of the source, which are sorted."""
        others = live_rows(self.vectors.addresses, rows)
        return np.zeros(len(self.vectors), np.bool_) if others is None else ~others

    def _present(self, source: Source) -> Flags | None:
        """By position, whether the source has the row; None if it has all."""
        if not isinstance(source, LanceSource):
            return None
        flags = np.ones(len(self.vectors), np.bool_)
        start = 0
        for identity, rows in self.fragments.items():
            fragment = source.whole_fragments.get(identity)
            live = None if fragment is None else source.live_flags(fragment)
            if fragment is None:
                flags[start : start + rows] = False
            elif live is not None:
                flags[start : start + rows] = live
            start += rows
        return None if flags.all() else flags
