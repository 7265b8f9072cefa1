"""Vectors in memory, and which of them are those of rows that count."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from exec_nodes.arrow.row_masks import among
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.vectors.column import Flags, VectorColumn


@dataclass(frozen=True, eq=False)
class VectorRun:
    """A MemTable's vectors, or those of the rows that some fragments of a Lance table had in one
    version: another one may have only some of these fragments, and fewer of their rows.

    Attributes:
        fragments: what caches know the fragments by; none for a MemTable.
        identity: names the run in keys, which must not keep it alive.
    """

    vectors: VectorColumn
    fragments: frozenset[Hashable] = field(default_factory=frozenset)
    identity: object = field(default_factory=object)

    def present(self, source: LanceSource) -> Flags | None:
        """By position, whether `source` has the row; None if rows are missing here that it has of
        these fragments: it is an older version, restored perhaps."""
        own = [one for key, one in source.whole_fragments.items() if key in self.fragments]
        rows = source.addresses(own)
        flags = among(self.vectors.addresses, rows)
        return flags if np.count_nonzero(flags) == len(rows) else None
