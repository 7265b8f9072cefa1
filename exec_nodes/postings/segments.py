"""The texts of a source as one index, whatever parts their postings are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.lance_index import LancePartition
from exec_nodes.postings.memory_postings import TextView
from exec_nodes.postings.protocol import Documents, Frequencies, Lengths, Live, shortest
from memwal_native import Postings

ReadTexts = Callable[[RowAddresses], pa.Array]


@dataclass(frozen=True, eq=False)
class TextPart:
    """Some documents of a source, numbered from 0 in an order of their own.

    Attributes:
        addresses: by document.
        lengths: by document.
        shortest: the least length of a document with any token.
        gone: for each document, whether the source has lost its row.
        postings: a token's posting list; None if no document holds it.
        near: see `TextIndex.near`; each token once.
        nbytes: that the part alone keeps in memory.
    """

    addresses: RowAddresses
    lengths: Lengths
    shortest: int
    gone: Live
    postings: Callable[[str], Postings | None]
    near: Callable[[str, int, int], Sequence[str]]
    nbytes: int = 0


def indexed_part(partition: LancePartition, addresses: RowAddresses, gone: Live) -> TextPart:
    """A partition of Lance's index, which is resident for all who read it."""
    return TextPart(
        addresses, partition.lengths, partition.shortest, gone, partition.postings, partition.near
    )


def memory_part(
    view: TextView, addresses: RowAddresses, gone: Live | None = None, nbytes: int = 0
) -> TextPart:
    """Rows that were tokenized here; the documents are the rows of `view`. `nbytes` is the size of
    `view`, unless something else keeps it in memory anyway."""

    @cache
    def postings(token: str) -> Postings | None:
        documents, frequencies = view.postings(token)
        if not len(documents):
            return None
        return Postings.plain(documents, frequencies, len(view.lengths))

    gone = np.zeros(len(addresses), np.bool_) if gone is None else gone
    lengths = view.lengths
    return TextPart(addresses, lengths, shortest(lengths), gone, postings, view.near, nbytes)


class PartedText:
    """A TextIndex over the documents of all parts, one part after the other (`TextIndex`).

    A *slot* is a document's number in that order; its document id is the rank of its address.
    """

    def __init__(self, parts: Sequence[TextPart], analyzer: Analyzer, read: ReadTexts) -> None:
        self.parts = tuple(parts)
        self.analyzer = analyzer
        self.query_words, self.positions = analyzer.query_words, analyzer.positions
        self._read = read
        ends = np.cumsum([0, *(len(part.addresses) for part in parts)])
        self.starts: tuple[int, ...] = tuple(ends[:-1].tolist())
        self.documents = int(ends[-1])

    @property
    def nbytes(self) -> int:
        """Bytes held; an estimate."""
        own = (4 if len(self.parts) == 1 else 24) * self.documents
        return own + sum(part.nbytes for part in self.parts)

    @lazy_property
    def slot_addresses(self) -> RowAddresses:
        """The addresses by slot."""
        parts = [part.addresses for part in self.parts]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])

    @lazy_property
    def slot_lengths(self) -> Lengths:
        """The lengths by slot."""
        parts = [part.lengths for part in self.parts]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int32), *parts])

    @lazy_property
    def order(self) -> npt.NDArray[np.intp] | None:
        """The slot of each document id; None if they are the same."""
        addresses = self.slot_addresses
        if (addresses[1:] > addresses[:-1]).all():
            return None
        return np.argsort(addresses, kind="stable")

    @lazy_property
    def addresses(self) -> RowAddresses:
        return self.slot_addresses if self.order is None else self.slot_addresses[self.order]

    @lazy_property
    def lengths(self) -> Lengths:
        return self.slot_lengths if self.order is None else self.slot_lengths[self.order]

    def slots_of(self, addresses: RowAddresses) -> npt.NDArray[np.intp]:
        """The slots of the sorted addresses, for those that have one."""
        places = self.addresses.searchsorted(addresses)
        inside = places < self.documents
        slots: npt.NDArray[np.intp] = places[inside]
        slots = slots[self.addresses[slots] == addresses[inside]]
        return slots if self.order is None else self.order[slots]

    def by_document(self, slots: Live) -> Live:
        """Flags by slot as flags by document id."""
        return slots if self.order is None else slots[self.order]

    def postings(self, token: str) -> tuple[Documents, Frequencies]:
        documents, frequencies = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
        for start, part in zip(self.starts, self.parts, strict=True):
            postings = part.postings(token)
            if postings is not None:
                slots, often = (np.frombuffer(data, np.int32) for data in postings.decode())
                documents.append(slots + np.int32(start))
                frequencies.append(often)
        slots, often = np.concatenate(documents), np.concatenate(frequencies)
        if self._ranks is None:
            return slots, often
        ids = self._ranks[slots]
        order = np.argsort(ids)
        return ids[order], often[order]

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        return set().union(*[part.near(token, distance, prefix_length) for part in self.parts])

    def texts(self, documents: Documents) -> pa.Array:
        return self._read(self.addresses[documents])

    @lazy_property
    def _ranks(self) -> Documents | None:
        if self.order is None:
            return None
        ranks = np.empty(self.documents, np.int32)
        ranks[self.order] = np.arange(self.documents, dtype=np.int32)
        return ranks
