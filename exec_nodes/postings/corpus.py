"""The live documents of a source, and their share of the corpus statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exec_nodes.base.columns import RowAddresses
from exec_nodes.postings.protocol import Documents, Live
from exec_nodes.postings.segments import PartedText


@dataclass(frozen=True)
class LiveText:
    """A source's texts with one set of stale rows; never changes.

    Attributes:
        live: by slot, see `PartedText`.
        documents: live documents with at least one token.
        total_length: their tokens.
        deaths: how many of the documents that `counts` has seen die are dead here.
    """

    text: PartedText
    live: Live
    documents: int
    total_length: int
    deaths: int
    counts: LiveCounts = field(repr=False)

    def document_frequency(self, token: str) -> int:
        """The number of live documents with a token."""
        return self.counts.document_frequency(token, self.deaths)


class _Living(NamedTuple):
    """The live rows without those of `stale`; see `LiveText`."""

    stale: RowAddresses
    live: Live
    documents: int
    total_length: int
    deaths: int


class LiveCounts:
    """Counts of live documents while more and more rows of a source go stale.

    Documents are kept in the order of their death. A token is counted once as a whole; from then on
    only among the documents that died since, so that an upsert costs no query a whole count.
    """

    def __init__(self, text: PartedText) -> None:
        self.text = text
        self._lock = Lock()
        gone = np.concatenate([np.empty(0, np.bool_), *(part.gone for part in text.parts)])
        self._dead: npt.NDArray[np.intp] = np.flatnonzero(gone)
        # Token -> (number of deaths that were counted, number of live documents).
        self._counted: dict[str, tuple[int, int]] = {}
        alive = text.slot_lengths[~gone] if len(self._dead) else text.slot_lengths
        counted = int(np.count_nonzero(alive)), int(alive.sum(dtype=np.int64))
        nothing = np.empty(0, np.uint64)
        # No LiveText: texts in a cycle with it would be held until Python looks for cycles.
        self._last = _Living(nothing, ~gone, *counted, len(self._dead))

    def at(self, stale: RowAddresses) -> LiveText:
        """The texts without the rows at these sorted addresses."""
        with self._lock:
            last = self._last
            if stale is last.stale or np.array_equal(stale, last.stale):
                return self._text_of(last)
            new = _added(last.stale, stale)
            if new is None:
                # This snapshot does not extend the last one: it is older, or has other regions.
                return LiveCounts(self.text).at(stale)
            slots = self.text.slots_of(new)
            slots = slots[last.live[slots]]
            live = last.live.copy()
            live[slots] = False
            lost = self.text.slot_lengths[slots]
            self._dead = np.concatenate([self._dead, slots])
            self._last = _Living(
                stale,
                live,
                last.documents - int(np.count_nonzero(lost)),
                last.total_length - int(lost.sum(dtype=np.int64)),
                len(self._dead),
            )
            return self._text_of(self._last)

    def document_frequency(self, token: str, deaths: int) -> int:
        """The number of documents with a token that are not among the first `deaths` dead ones."""
        counted = self._counted.get(token)
        dead = self._dead
        if counted is not None and counted[0] == deaths:
            return counted[1]
        if counted is None:
            frequency = self._count(token, None) - self._count(token, dead[:deaths])
        elif counted[0] < deaths:
            frequency = counted[1] - self._count(token, dead[counted[0] : deaths])
        else:
            return counted[1] + self._count(token, dead[deaths : counted[0]])
        self._counted[token] = (deaths, frequency)
        return frequency

    def _text_of(self, living: _Living) -> LiveText:
        return LiveText(self.text, *living[1:], self)

    def _count(self, token: str, among: npt.NDArray[np.intp] | None) -> int:
        if among is not None and not len(among):
            return 0
        rows = None if among is None else np.sort(among)
        count = 0
        for start, part in zip(self.text.starts, self.text.parts, strict=True):
            postings = part.postings(token)
            if postings is None:
                continue
            if rows is None:
                count += len(postings)
            else:
                first, last = rows.searchsorted([start, start + len(part.addresses)])
                own: Documents = (rows[first:last] - start).astype(np.int32)
                count += postings.count_among(own)
        return count


def _added(old: RowAddresses, new: RowAddresses) -> RowAddresses | None:
    """The elements that `new` adds to `old`, both sorted and unique; None if it lacks some of
    `old`."""
    if not len(old):
        return new
    if len(new) < len(old):
        return None
    places = np.minimum(old.searchsorted(new), len(old) - 1)
    more = new[old[places] != new]
    return more if len(old) + len(more) == len(new) else None


class LiveCorpus:
    """Sums up the statistics of the sources' own live rows (`CorpusStatistics`)."""

    def __init__(self, texts: Sequence[LiveText]) -> None:
        self.texts = tuple(texts)
        self.documents = sum([text.documents for text in texts])
        self.total_length = sum([text.total_length for text in texts])
        self._frequencies: dict[str, int] = {}

    def document_frequency(self, token: str) -> int:
        frequency = self._frequencies.get(token)
        if frequency is None:
            frequency = sum([text.document_frequency(token) for text in self.texts])
            self._frequencies[token] = frequency
        return frequency
