"""Extends the resident artefacts of a table to a new base version before queries read it.

A merge leaves most fragments unchanged: the new ones are read and matched here, so that the first
queries over the new version need not.
"""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.liveness.stale_sets import STALE_SETS
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.text.scoring.open import SOURCE_TEXTS
from exec_nodes.vectors import resident
from planner.model import Snapshot


def warm_up(snapshot: Snapshot) -> None:
    """Extend columns, keys, vectors, stale sets and texts to the base version of `snapshot`, and
    find how far its indexes reach."""
    base = snapshot.base
    if not isinstance(base, LanceSource):
        return
    newer = tuple(source for region in snapshot.regions for source in region.sources)
    flushed = tuple(source for source in newer if not isinstance(source, MemTableSource))
    base.extend()
    resident.extend(base, _vectors(snapshot.info.schema))
    for masks in (flushed, newer):  # for searches and for scans
        STALE_SETS.extend(base, masks)
    SOURCE_TEXTS.extend(base, lambda: STALE_SETS.of_base(base, flushed))
    list(snapshot.gaps)


def _vectors(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
