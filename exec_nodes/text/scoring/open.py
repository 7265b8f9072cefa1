"""The texts of every kind of source, opened once: from Lance's index, or tokenized here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from weakref import WeakSet

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.text_columns import column_of, text_paths, texts_at
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.errors import UnsupportedError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import one_array
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.fragments import all_addresses, field_ids, overlaid_fields, within
from exec_nodes.lance.indexes import moved_fragments
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.corpus import LiveCounts
from exec_nodes.postings.lance_index import IndexSegment, open_index
from exec_nodes.postings.memory_postings import GrowingText, TextView
from exec_nodes.postings.protocol import Live
from exec_nodes.postings.segments import PartedText, TextPart, indexed_part, memory_part
from exec_nodes.resident.runs import ResidentRuns
from exec_nodes.resident.store import STORE, Key, ResidentStore
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source, is_same_table
from exec_nodes.text.scoring.matches import common_rows

_KIND, _TOKENIZED = "texts", "tokenized texts"
# The index segments, the column, and what its index makes of a text.
_Detail = tuple[frozenset[str] | None, str, Analyzer]

_NOWHERE = np.uint64(2**64 - 1)


class _Texts(NamedTuple):
    """Tokenized rows, and their addresses."""

    view: TextView
    addresses: RowAddresses
    nbytes: int


@dataclass(frozen=True)
class Tokenizer:
    """Tokenizes fragments that no index covers (`Builder`)."""

    source: LanceSource
    column: str
    analyzer: Analyzer
    row_bytes = 100

    def build(self, fragments: Sequence[Any]) -> _Texts:
        text, addresses = GrowingText(self.analyzer), all_addresses(fragments)
        field = self.source.field(column_of(self.column))
        for values in self.source.every_value(field, fragments):
            text.append(texts_at(values, self.column))
        return _Texts(text.view(text.rows), addresses, text.nbytes + int(addresses.nbytes))

    def nbytes(self, value: _Texts) -> int:
        return value.nbytes


class SourceTexts:
    """Opens and keeps the texts of sources; all that is kept never changes, or only grows."""

    def __init__(self, store: ResidentStore = STORE) -> None:
        self._store = store

    def rows(
        self, source: Source, column: str, analyzer: Analyzer, tokens: Collection[str]
    ) -> RowAddresses:
        """The sorted addresses of the rows whose text has all of the tokens, stale rows included;
        none where there are no tokens."""
        row_lists = [np.empty(0, np.uint64)]
        for part in self.of(source, column, analyzer).text.parts if tokens else ():
            lists = [postings for token in tokens if (postings := part.postings(token))]
            if len(lists) == len(tokens):
                documents = [np.frombuffer(postings.decode()[0], np.int32) for postings in lists]
                rows = common_rows(documents, len(part.addresses))
                row_lists.append(part.addresses[rows[~part.gone[rows]]])
        return np.sort(np.concatenate(row_lists))

    def of(self, source: Source, column: str, analyzer: Analyzer) -> LiveCounts:
        """The texts of a column, with any set of stale rows."""
        # Postings are read when they are needed, so never from an index that was replaced since.
        index = source.index_segments if isinstance(source, LanceSource) else None
        key = Key(_KIND, (source.identity,), (index, column, analyzer))
        cached: tuple[int, LiveCounts, WeakSet[Source]] | None = self._store.get(key)
        if cached is None or cached[0] != source.rows:
            with self._store.locked(key):
                cached = self._store.get(key)
                if cached is None or cached[0] != source.rows:
                    sources = WeakSet[Source]()  # texts must not keep them alive
                    text = self._open(source, column, analyzer, sources)
                    cached = source.rows, LiveCounts(text), sources
                    self._store.put(key, cached, text.nbytes)
        cached[2].add(source)
        return cached[1]

    def extend(self, base: LanceSource, stale: Callable[[], RowAddresses]) -> None:
        """Open the texts of a version of the base that are open of another one."""
        used = self._store.used(_KIND)
        texts = {key.detail for key in used if is_same_table(key.owners[0], base.identity)}
        paths = text_paths(base.info.schema)
        for _, column, analyzer in cast(set[_Detail], texts):
            if column in paths:
                self.of(base, column, analyzer).at(stale())

    def indexed(self, source: LanceSource, column: str, analyzer: Analyzer) -> bool:
        """Whether a source has an index of its own that can be read for this analyzer."""
        with lance_errors(source.name, source.uri):
            return bool(self._segments(source, column, analyzer))

    def _open(
        self, source: Source, column: str, analyzer: Analyzer, sources: WeakSet[Source]
    ) -> PartedText:
        def read(addresses: RowAddresses) -> pa.Array:
            any_source = next(iter(sources))  # a search has at least one
            rows = any_source.rows_at(addresses, [column_of(column)])
            return texts_at(one_array(rows.column(0)), column)

        if isinstance(source, LanceSource):
            with lance_errors(source.name, source.uri):
                parts = self._stored_parts(source, column, analyzer)
        elif isinstance(source, MemTableSource):
            addresses = np.arange(source.rows, dtype=np.uint64)
            parts = [memory_part(source.text(column, analyzer), addresses)]
        else:
            raise UnsupportedError(f"{source.name} has no texts that can be searched")
        return PartedText(parts, analyzer, read)

    def _stored_parts(self, source: LanceSource, column: str, analyzer: Analyzer) -> list[TextPart]:
        """The rows that the index covers, and the rest tokenized: fragments appended or rewritten
        since."""
        segments = self._segments(source, column, analyzer)
        read = {fragment.fragment_id for fragment in source.whole_fragments.values()}
        ids = field_ids(source.dataset, column)
        covered = _covered(source, ids, segments)
        rows = RowsOf(source)
        parts: list[TextPart] = []
        for segment in segments:
            fragments = segment.fragments & read & covered
            for partition in segment.partitions:
                parts.append(indexed_part(partition, *rows.of_index(partition.row_ids, fragments)))
            read -= fragments
        key = Key(_TOKENIZED, (source.uri,), (ids, analyzer))
        own = {
            name: fragment
            for name, fragment in source.whole_fragments.items()
            if fragment.fragment_id in read
        }
        if not own and source.fragments is None:
            self._store.evict_where(_TOKENIZED, lambda token_key: token_key == key)
        runs = ResidentRuns[_Texts](self._store, key, own)
        for run in runs.extend(Tokenizer(source, column, analyzer)).runs:
            text = run.run.value
            documents = rows.of_fragments(text.addresses, run.fragments)
            # They are resident on their own and evicted on their own: texts keep their run alive.
            parts.append(memory_part(text.view, *documents, nbytes=text.nbytes))
        return parts

    def _segments(
        self, source: LanceSource, column: str, analyzer: Analyzer
    ) -> Sequence[IndexSegment]:
        options = source.dataset.latest_storage_options()
        return open_index(source.dataset, column, analyzer, options, self._store) or ()


def _covered(
    source: LanceSource, ids: Sequence[int], segments: Iterable[IndexSegment]
) -> frozenset[int]:
    """The fragments that segments of an index on a field cover with the values that these have now,
    at the addresses where they are now."""
    fragments = source.dataset.get_fragments()
    moved = moved_fragments(source.dataset, source.name)
    overlaid = {
        fragment.fragment_id for fragment in fragments if overlaid_fields(fragment) & set(ids)
    }
    return frozenset[int]().union(*(segment.fragments for segment in segments)) - overlaid - moved


SOURCE_TEXTS = SourceTexts()


class RowsOf:
    """The rows of one version of a Lance table; each answer is read once."""

    def __init__(self, source: LanceSource) -> None:
        self._source = source

    def of_index(
        self, row_ids: RowAddresses, fragments: Collection[int]
    ) -> tuple[RowAddresses, Live]:
        """The addresses of an index's row ids, and which of these rows no longer exist.

        Only rows in the fragments that the index covers count: one with a stable row id may have
        moved on with another text.
        """
        stable = self._source.dataset.has_stable_row_ids
        addresses, gone = self.of_fragments(
            self._by_stable_id(row_ids) if stable else row_ids, fragments
        )
        # Another entry may stand for the row where it is now.
        return np.where(gone, _NOWHERE, addresses) if stable else addresses, gone

    def of_fragments(
        self, addresses: RowAddresses, fragments: Collection[int]
    ) -> tuple[RowAddresses, Live]:
        """The addresses, and which of these rows no longer exist, or are not in `fragments`:
        another document stands for a row of another fragment, with its current value."""
        outside = ~within(addresses, fragments)
        gone = outside | self._deleted(addresses)
        return np.where(outside, _NOWHERE, addresses) if outside.any() else addresses, gone

    def _deleted(self, addresses: RowAddresses) -> Live:
        """For each row, whether it is in a deletion vector."""
        if not self._has_deletions:
            return np.zeros(len(addresses), np.bool_)
        live = self._live
        places = live.searchsorted(addresses)
        gone: Live = places == len(live)
        gone[~gone] = live[places[~gone]] != addresses[~gone]
        return gone

    def _by_stable_id(self, row_ids: RowAddresses) -> RowAddresses:
        ids = self._source.row_ids(self._live)
        order = np.argsort(ids)
        places = ids[order].searchsorted(row_ids)
        present = places < len(ids)
        present[present] = ids[order][places[present]] == row_ids[present]
        addresses = np.full(len(row_ids), _NOWHERE)
        addresses[present] = self._live[order][places[present]]
        return addresses

    @lazy_property
    def _has_deletions(self) -> bool:
        fragments = self._source.dataset.get_fragments()
        return any(fragment.metadata.deletion_file is not None for fragment in fragments)

    @lazy_property
    def _live(self) -> RowAddresses:
        return self._source.matching(())
