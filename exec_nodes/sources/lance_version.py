"""One version of a Lance table: its fragments and indexes, and their resident artefacts."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.lance.deletion_files import ReadFile
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.fragments import RowIds, fragment_identity
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.scan import every_value, fragment_groups
from exec_nodes.resident.columns import FragmentColumns
from exec_nodes.resident.runs import ResidentRuns
from exec_nodes.resident.store import Key, ResidentStore


@dataclass(kw_only=True, eq=False)
class LanceVersion:
    """An immutable version, or some of its fragments, which is opened when it is first read. Safe
    to use from several threads.

    Attributes:
        identity: differs from that of any other rows or columns.
        name: the name in plans and errors.
        uri: the URI of the table.
        store: keeps what is resident of it.
        version: its number, for the base table.
        only: the numbers of the fragments that are read; None for all.
        read_file: gives the bytes of a file in the table's folder.
    """

    identity: Hashable
    name: str
    uri: str
    store: ResidentStore
    open_dataset: Callable[[], Any]
    version: int | None = None
    only: frozenset[int] | None = None
    read_file: ReadFile | None = None
    _dataset: Any = field(default=None, init=False)
    _runs: dict[Key, ResidentRuns[Any]] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def fragments(self) -> list[Any] | None:
        """Lance's fragments that are read; None for all."""
        if self.only is None:
            return None
        return [fragment for group in self._groups for fragment in group]

    @property
    def dataset(self) -> Any:
        """The Lance dataset; opened once."""
        if self._dataset is None:
            with self._lock, lance_errors(self.name, self.uri):
                if self._dataset is None:
                    self._dataset = self.open_dataset()
        return self._dataset

    def has_index(self, name: str) -> bool:
        """Whether its own files have an index: a generation may be older than one."""
        return name in self._index_names

    @property
    def is_open(self) -> bool:
        """Whether the dataset is open."""
        return self._dataset is not None

    @lazy_property
    def _index_names(self) -> frozenset[str]:
        return frozenset(index.name for index in indexes_of(self.dataset, self.name))

    @lazy_property
    def index_segments(self) -> frozenset[str]:
        """Ids of the indexes' segments: other than rows, they are replaced from time to time."""
        indexes = indexes_of(self.dataset, self.name)
        return frozenset(segment.uuid for index in indexes for segment in index.segments)

    @lazy_property
    def whole_fragments(self) -> Mapping[Hashable, Any]:
        """The fragments that are read, in ascending row address, by what caches know them by in
        every version of the table."""
        own = self.dataset.get_fragments() if self.fragments is None else self.fragments
        ascending = sorted(own, key=lambda fragment: fragment.fragment_id)
        return {fragment_identity(self.uri, fragment): fragment for fragment in ascending}

    @lazy_property
    def rows(self) -> int:
        """Rows held, without those in Lance's deletion vectors."""
        if self.only is not None:
            return sum(fragment.metadata.num_rows for group in self._groups for fragment in group)
        return int(self.dataset.count_rows())

    @lazy_property
    def parts(self) -> int:
        """At most as many groups of fragments as there are processors."""
        return max(1, len(self._groups))

    def addresses(self, fragments: Iterable[Any]) -> RowAddresses:
        """The addresses of the rows of some fragments."""
        with lance_errors(self.name, self.uri):
            pieces = [self._kept.addresses(fragment) for fragment in fragments]
        return np.concatenate([np.empty(0, np.uint64), *pieces])

    def every_value(self, column: pa.Field, fragments: Sequence[Any]) -> Iterator[pa.Array]:
        """A column of all rows of some fragments, deleted ones too."""
        with lance_errors(self.name, self.uri):
            yield from every_value(self.dataset, column, fragments)

    def runs(self, kind: str, detail: Hashable) -> ResidentRuns[Any]:
        """The resident artefacts of its fragments of one kind; `detail` tells which."""
        key = Key(kind, (self.uri,), detail)
        runs = self._runs.get(key)
        if runs is None:
            made = ResidentRuns[Any](self.store, key, self.whole_fragments)
            runs = self._runs.setdefault(key, made)
        return runs

    def field_id(self, name: str) -> int | None:
        """Lance's identity of a column, whatever its name; None if the rows don't have it."""
        return self._kept.ids.get(name)

    def row_ids(self, addresses: RowAddresses) -> RowAddresses:
        """Lance's ids of these rows: their addresses, unless the table has stable row ids."""
        if not self.dataset.has_stable_row_ids:
            return addresses
        key = Key("row ids", (self.identity,))
        ids = self.store.compute(key, lambda: RowIds(self.dataset), lambda ids: ids.nbytes)
        return ids.of(addresses)

    @lazy_property
    def _kept(self) -> FragmentColumns:
        return FragmentColumns(self.uri, self.dataset, self.store, self.read_file)

    @lazy_property
    def _groups(self) -> list[list[Any]]:
        with lance_errors(self.name, self.uri):
            return fragment_groups(self.dataset, os.cpu_count() or 1, self.only)
