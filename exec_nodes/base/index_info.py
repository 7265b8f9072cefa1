"""An index of the base table, as plans see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TEXT_KIND = "INVERTED"


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One index of the base table, at the version that a snapshot reads.

    Attributes:
        name: the index's name, as `maintained_indexes` lists it.
        column: the column it is on.
        kind: as Lance names it: `IVF_FLAT`, `IVF_PQ`, `IVF_HNSW_SQ`, `INVERTED`, `BTREE`, ...
        metric: of vector indexes: `l2`, `cosine`, `dot` or `hamming`; empty for others.
        parameters: of full-text indexes: the tokenizer's parameters, as Lance takes them.
        maintained: whether generations get it too (Specification 2, "MemTable Indexing").
    """

    name: str
    column: str
    kind: str
    metric: str = ""
    parameters: Mapping[str, object] = field(default_factory=dict)
    maintained: bool = True

    @property
    def is_text(self) -> bool:
        """Whether it is a full-text index."""
        return self.kind == TEXT_KIND

    @property
    def is_vector(self) -> bool:
        """Whether it is a vector index."""
        return bool(self.metric)
