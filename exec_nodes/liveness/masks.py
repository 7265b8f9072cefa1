"""The stale rows that a search masks in its sources, and the keys that it has to ask newer sources
for.

A search looks at some dozens of candidates, so it need not know every stale row. What flushed
generations replace never changes: it is matched once a flush, cached (`stale`), and masked inside
the sources, before anything is ranked. What MemTables replace changes with every write, and
matching it again would make each search pay for the writes before it: their key indexes are asked
about the candidates instead. The same holds for the generations above a base table so large that
matching its keys takes noticeably long, at least until that was done in the background: their bloom
filters are asked, and on a hit their keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.liveness.stale_sets import PlanStale
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source

_NO_ROWS: RowAddresses = np.empty(0, np.uint64)


class Matched(Thresholds):
    """Matching the keys of more base rows than `inline` takes longer than asking about candidates:
    it is done in the background, to the good of later searches. More than `most` rows are not worth
    it."""

    inline = 100_000
    most = 4_000_000


@dataclass(frozen=True)
class _Mask:
    rows: RowAddresses
    unmasked: tuple[Source, ...]


@dataclass(frozen=True)
class Masks:
    """The masks of one plan's sources, by their ordinals.

    What is masked and what is left to ask is decided once, together: every stale row of a source is
    in `of`, or its key is in one of `unmasked`. A plan that has all keys `matched` anyway leaves
    nothing to ask.
    """

    stale: PlanStale
    matched: bool = False

    def of(self, ordinal: int) -> RowAddresses:
        """Sorted addresses of stale rows of a source. Tombstones and rows that a later one of the
        same source replaces are always among them."""
        return self._masks[ordinal].rows

    def unmasked(self, ordinal: int) -> tuple[Source, ...]:
        """The newer sources that may hold keys of a source's other rows, newest first."""
        return self._masks[ordinal].unmasked

    @property
    def asked(self) -> tuple[Source, ...]:
        """The sources that may be left to ask, by region and newest first."""
        base = self.stale.base
        if self.matched:
            return ()
        large = base is not None and base.ready and base.rows > Matched.inline
        regions = (region if large else _split(region)[0] for region in self.stale.regions)
        return tuple(source for region in regions for source in region)

    def exact(self, ordinal: int) -> RowAddresses:
        """Sorted addresses of all stale rows of a source; may read and match keys."""
        return self.stale.compute()[ordinal]

    @lazy_property
    def _masks(self) -> list[_Mask]:
        self.stale.open()
        if self.matched:
            return [_Mask(rows, ()) for rows in self.stale.compute()]
        masks = [] if self.stale.base is None else [self._of_base(self.stale.base)]
        for region in self.stale.regions:
            masks += self._of_region(region)
        return masks

    def _of_base(self, base: Source) -> _Mask:
        sets, regions, newer = self.stale.sets, self.stale.regions, self.stale.newer
        cached = sets.cached_base(base, newer)
        if cached is not None:
            return _Mask(cached, ())
        flushed = tuple([source for region in regions for source in _split(region)[1]])
        cached = sets.cached_base(base, flushed)
        if cached is None:
            if base.rows > Matched.inline:
                if base.rows <= Matched.most:
                    sets.find_base(base, flushed)
                return _Mask(_NO_ROWS, newer)
            cached = sets.of_base(base, flushed)
        return _Mask(cached, tuple([source for region in regions for source in _split(region)[0]]))

    def _of_region(self, region: Sequence[Source]) -> list[_Mask]:
        cached = self.stale.sets.cached_region(region)
        if cached is not None:
            return [_Mask(rows, ()) for rows in cached]
        memtables, flushed = _split(region)
        own = [
            _Mask(memtable.keys().hidden, memtables[:at]) for at, memtable in enumerate(memtables)
        ]
        return own + [_Mask(rows, memtables) for rows in self.stale.sets.of_region(flushed)]


def _split(region: Sequence[Source]) -> tuple[tuple[Source, ...], tuple[Source, ...]]:
    """A region's MemTables and its flushed generations, each newest first."""
    memtables = tuple([source for source in region if isinstance(source, MemTableSource)])
    return memtables, tuple(region[len(memtables) :])
