"""Artefacts of the fragments of a Lance table, which serve every version that has the fragments.

The values of a fragment never change, and a later version has most fragments of an earlier one. So
artefacts derived from a column (keys, vectors, postings) are kept in runs: one for the fragments
that were read together, and a new one for each version's additional ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.tasks import in_background
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import Key, ResidentStore

T = TypeVar("T")


class Wear(Thresholds):
    """Each run is searched on its own, including the rows of fragments that a version no longer
    has. Of `most_runs` runs all but the largest are merged, and all of them if they would have more
    than `most_share` times the rows of the version."""

    most_runs = 8
    most_share = 2


class Builder(Protocol[T]):
    """Derives an artefact."""

    @property
    def row_bytes(self) -> int:
        """About how many bytes of memory a row takes."""

    def build(self, fragments: Sequence[Any]) -> T:
        """The artefact of all rows of some fragments, given in ascending row address. Deleted rows
        too: a version that is restored has them again."""

    def nbytes(self, value: T) -> int:
        """Bytes of an artefact."""


@dataclass(frozen=True, eq=False)
class Run(Generic[T]):
    """An artefact derived from some fragments.

    Attributes:
        fragments: their identities, see `fragment_identity`; empty for a run outside of Lance
            tables.
        rows: the rows of these fragments, including deleted ones.
    """

    value: T
    fragments: frozenset[Hashable] = frozenset()
    rows: int = 0
    nbytes: int = 0


@dataclass(frozen=True)
class LiveRun(Generic[T]):
    """A run, some of whose fragments may be gone, and those that a version has, by number."""

    run: Run[T]
    fragments: Mapping[int, Any]


@dataclass(frozen=True)
class Coverage(Generic[T]):
    """The resident runs of a version.

    Attributes:
        runs: runs with some of its fragments, in the order in which they were read; no two share a
            fragment.
        unread: its fragments that no run has.
        unread_rows: the rows of these, deleted ones too.
    """

    runs: Sequence[LiveRun[T]]
    unread: Sequence[Any]
    unread_rows: int


class ResidentRuns(Generic[T]):
    """The runs of one kind of artefact as one version of a table reads them. Safe to use from
    several threads.

    Attributes:
        key: their name in the store, for all versions of the table.
    """

    def __init__(self, store: ResidentStore, key: Key, fragments: Mapping[Hashable, Any]) -> None:
        """`fragments` are those that the version has, or that are of use, by identity and in
        ascending row address."""
        self.key = key
        self._store = store
        self._fragments = fragments
        # For the last runs: their fragments, and which of these the version has.
        self._cached: tuple[list[frozenset[Hashable]], list[dict[int, Any]], list[Any], int]
        self._cached = [], [], list(fragments.values()), self.rows
        self._reading = False

    @lazy_property
    def rows(self) -> int:
        """Rows of the version, deleted ones too."""
        return _rows(self._fragments.values())

    def take_use(self) -> bool:
        """See `ResidentStore.take_use`: whether the runs are worth being extended."""
        return self._store.take_use(self.key)

    def coverage(self) -> Coverage[T]:
        """The coverage, without reading anything."""
        return self._coverage(self._store.get(self.key) or ())

    def read(
        self, builder: Builder[T], saved: int, *, eager: Callable[[], bool] | None = None
    ) -> Coverage[T]:
        """The coverage after this call has read what it may.

        It reads everything if `eager` says so, and otherwise a small addition to another version.
        The rest is read in the background; if nothing is resident, after as many calls as pay for
        it, each of which would have saved reading `saved` bytes. Artefacts that would not fit are
        not read.
        """
        coverage = self.coverage()
        if not coverage.unread or self.rows * builder.row_bytes > self._store.largest:
            return coverage
        kept = self._unworn(coverage, builder)
        missing = max(coverage.unread_rows, self.rows - sum(run.rows for run in kept))
        cost = missing * builder.row_bytes
        if (coverage.runs and cost <= Admission.inline) or (eager and eager()):
            return self.extend(builder)
        if not self._reading and (coverage.runs or self._store.pays(self.key, saved, cost)):
            self._reading = True
            if not in_background(partial(self._extend_later, builder)):
                self._reading = False
        return coverage

    def extend(self, builder: Builder[T]) -> Coverage[T]:
        """The coverage after everything missing was read."""
        with self._store.locked(self.key):
            coverage = self.coverage()
            if not coverage.unread:
                return coverage
            runs = self._unworn(coverage, builder)
            covered = frozenset[Hashable]().union(*(run.fragments for run in runs))
            new = {
                name: fragment for name, fragment in self._fragments.items() if name not in covered
            }
            value = builder.build(list(new.values()))
            run = Run(value, frozenset(new), _rows(new.values()), builder.nbytes(value))
            runs = (*runs, run)
            self._store.put(self.key, runs, sum(run.nbytes for run in runs))
            return self._coverage(runs)

    def recount(self, builder: Builder[T]) -> None:
        """Count the bytes of the runs again: artefacts derived from them have grown."""
        with self._store.locked(self.key):
            runs_before: tuple[Run[T], ...] = self._store.get(self.key) or ()
            runs = tuple(replace(run, nbytes=builder.nbytes(run.value)) for run in runs_before)
            if runs:
                self._store.put(self.key, runs, sum(run.nbytes for run in runs))

    def _extend_later(self, builder: Builder[T]) -> None:
        try:
            self.extend(builder)
        finally:
            self._reading = False

    def _unworn(self, coverage: Coverage[T], builder: Builder[T]) -> tuple[Run[T], ...]:
        """The runs that stay when the unread fragments, and the version's fragments of all other
        runs, are read into a new run. None stays if too many of their rows are gone, or if all
        would not fit; if there are too many runs, the one with most rows of the version stays."""
        runs: tuple[Run[T], ...] = self._store.get(self.key) or ()
        rows = sum(run.rows for run in runs) + coverage.unread_rows
        nbytes = sum(run.nbytes for run in runs) + coverage.unread_rows * builder.row_bytes
        if rows > Wear.most_share * self.rows or nbytes > self._store.largest:
            return ()
        if len(runs) < Wear.most_runs:
            return runs
        return tuple(live.run for live in coverage.runs if 2 * live.run.rows > self.rows)

    def _coverage(self, runs: tuple[Run[T], ...]) -> Coverage[T]:
        fragments = [run.fragments for run in runs]
        cached = self._cached
        if cached[0] != fragments:
            unread, present = dict(self._fragments), []
            for identities in fragments:
                own = [unread.pop(name) for name in list(unread) if name in identities]
                present.append({fragment.fragment_id: fragment for fragment in own})
            cached = fragments, present, list(unread.values()), _rows(unread.values())
            self._cached = cached
        _, present, unread_fragments, unread_rows = cached
        pairs = zip(runs, present, strict=True)
        live = [LiveRun(run, own) for run, own in pairs if own]
        return Coverage(live, unread_fragments, unread_rows)


def _rows(fragments: Iterable[Any]) -> int:
    return sum(fragment.physical_rows for fragment in fragments)
