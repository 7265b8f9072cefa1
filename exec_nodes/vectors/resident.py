"""Vectors kept in memory, and what is derived from a mask, under one byte bound.

A search in memory beats one through an index as long as the vectors fit (200,000 x 64 float32 on 2
cores: 1 to 2 ms against 5 ms with equal recall), but the index need not read them all. They are
read once so many searches were made as pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from exec_nodes.arrow.row_masks import live_rows
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.tasks import in_background
from exec_nodes.resident.store import STORE, Key
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from exec_nodes.vectors.column import Flags, VectorColumn
from exec_nodes.vectors.metrics import Metric
from exec_nodes.vectors.quantized import BYTES_PER_SEARCH, QuantizedVectors, coded_bytes
from exec_nodes.vectors.vector_run import VectorRun
from memwal_native import VectorCodes

# What a merge wrote, up to so many bytes, is read by the search that finds it missing.
_READ_INLINE = 2 * BYTES_PER_SEARCH
# As each run is searched by itself, and rows that were deleted since are looked at all the same,
# everything is read anew when there are more of them.
_MOST_RUNS = 8
_MOST_SHARE = 2
# Of a row, beside its elements and their codes: its address, and what it is scaled by.
_PLACE_BYTES = 24
_ENTRY_BYTES = 200
T = TypeVar("T")


def resident_vectors(
    source: Source, column: str, row_bytes: int, metric: Metric, *, eager: Callable[[], bool]
) -> Sequence[VectorRun] | None:
    """All vectors of a source, `row_bytes` each, if they are in memory or worth being kept there.

    A MemTable's always are. Those of a Lance table are read at the first call if `eager` says so;
    otherwise after some, in the background and with the codes that `metric` needs, if any, as an
    index can be asked meanwhile: None until then, and if they are too many for the cache. They
    serve later versions too, of which only new fragments are read.
    """
    if isinstance(source, MemTableSource):
        codes = partial(_growing_codes, source.identity, column)
        return [VectorRun(VectorColumn.decoded(*source.column(column), codes))]
    if not isinstance(source, LanceSource):
        return None
    if source.field_id(column) is None:
        return []
    if source.rows * (row_bytes + row_bytes // 4 + _PLACE_BYTES) > STORE.largest:
        return None
    runs = _Runs(source, column)
    known, unread = runs.known()
    size = row_bytes * sum(fragment.metadata.num_rows for fragment in unread.values())
    if unread and (eager() or (known and size <= _READ_INLINE)):
        known, unread = runs.read(), {}
    if unread:
        if _pays(runs.key, "reading", size):
            in_background(runs.read if metric == "hamming" else partial(runs.read_coded, metric))
        return None
    if runs.are_many(known) and _pays(runs.key, "reading anew", source.rows * row_bytes):
        in_background(runs.read_anew)
    return known


def extend(source: LanceSource, columns: Iterable[str]) -> None:
    """Read what is new in a version of the vectors that are resident of others, and code it."""
    for column in columns:
        runs = _Runs(source, column)
        if not STORE.is_used(runs.key):
            continue
        metrics = {metric for run in STORE.get(runs.key) or () for metric in run.vectors.metrics}
        for run in runs.read():
            for metric in metrics:
                run.vectors.codes(metric)


def is_resident(source: LanceSource, column: str) -> bool:
    """Whether all vectors of a Lance table are in memory."""
    return source.field_id(column) is not None and not _Runs(source, column).known()[1]


class _Runs:
    """The vectors of a Lance table in memory, as they were read from one version or another."""

    def __init__(self, source: LanceSource, column: str) -> None:
        self.key = Key("vectors", (source.place,), source.field_id(column))
        self._source = source
        self._column = column

    def known(self) -> tuple[Sequence[VectorRun], Mapping[Hashable, Any]]:
        """Those that have rows of the source's version, and its fragments that none of them has."""
        unread = dict(self._source.whole_fragments)
        serving = []
        for run in STORE.get(self.key) or ():
            if unread.keys().isdisjoint(run.fragments) or present(self._source, run) is None:
                continue
            serving.append(run)
            for identity in run.fragments:
                unread.pop(identity, None)
        return serving, unread

    def are_many(self, known: Sequence[VectorRun]) -> bool:
        """Whether searching them one by one, or what was deleted since, costs too much."""
        rows = sum(len(run.vectors) for run in known)
        return len(known) > _MOST_RUNS or rows > _MOST_SHARE * self._source.rows

    def read(self) -> Sequence[VectorRun]:
        """All of them, after what is missing was read."""
        with STORE.locked(self.key):
            known, unread = self.known()
            return self._with(known, unread) if unread else known

    def read_coded(self, metric: Metric) -> None:
        """Read what is missing, and make the codes that searches need."""
        for run in self.read():
            run.vectors.codes(metric)

    def read_anew(self) -> None:
        """Read all that the source's version has, to be searched at once."""
        with STORE.locked(self.key):
            if self.are_many(self.known()[0]):
                self._with((), self._source.whole_fragments)

    def _with(
        self, known: Sequence[VectorRun], unread: Mapping[Hashable, Any]
    ) -> Sequence[VectorRun]:
        found, addresses = self._source.whole_column(self._column, unread.values())
        vectors = VectorColumn.decoded(found, addresses, QuantizedVectors())
        runs = [*known, VectorRun(vectors, frozenset(unread))]
        nbytes = sum(run.vectors.nbytes + coded_bytes(run.vectors) for run in runs)
        if known and nbytes > STORE.largest:
            return self._with((), self._source.whole_fragments)
        STORE.put(self.key, runs, nbytes)
        return runs


def present(source: LanceSource, run: VectorRun) -> Flags | None:
    """`held.present`, kept."""

    def make() -> tuple[Flags | None]:
        return (run.present(source),)

    key = Key("vector flags", (source.identity,), ("present", run.identity))
    return STORE.compute(key, make, _flag_bytes)[0]


def live_flags(source: Source, run: VectorRun, mask: RowAddresses) -> Flags | None:
    """By position, whether `source` has the row and `mask`, sorted, has not; None if all count."""
    if not isinstance(source, LanceSource):
        return live_rows(run.vectors.addresses, mask)

    def make() -> tuple[Flags | None]:
        here, unmasked = present(source, run), live_rows(run.vectors.addresses, mask)
        if here is None or here.all():
            return (unmasked,)
        return (here if unmasked is None else here & unmasked,)

    return derived(source, ("live", run.identity), mask, make, _flag_bytes)[0]


def derived(
    source: Source,
    what: Hashable,
    mask: RowAddresses,
    make: Callable[[], T],
    size: Callable[[T], int],
) -> T:
    """What `make` makes of a source's mask, kept until another mask comes."""
    key = Key("vector flags", (source.identity,), what)
    kept: tuple[RowAddresses, T] | None = STORE.get(key)
    if kept is not None and kept[0] is mask:
        return kept[1]
    made = make()
    STORE.put(key, (mask, made), mask.nbytes + size(made) + _ENTRY_BYTES)
    return made


def _flag_bytes(made: tuple[Flags | None]) -> int:
    return 0 if made[0] is None else made[0].nbytes


def _pays(key: Key, work: str, size: int) -> bool:
    """Whether the searches so far pay for `work` on `size` bytes; counts this one."""
    return STORE.pays(key._replace(detail=(key.detail, work)), BYTES_PER_SEARCH, size)


def _growing_codes(
    identity: Hashable, column: str, vectors: VectorColumn, metric: Metric
) -> VectorCodes:
    """Those of a MemTable's vectors, of which only the rows since the last search are coded."""
    key = Key("vector codes", (identity,), (column, metric))
    known: VectorCodes | None = STORE.get(key)
    if known is None or len(known) < len(vectors):
        with STORE.locked(key):
            known = vectors.coded(STORE.get(key), metric)
            STORE.put(key, known, known.nbytes)
    return known
