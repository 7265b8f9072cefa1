"""Vectors in memory, and artefacts derived from masks, under one bound in bytes.

A search in memory beats one through an index as long as the vectors fit (200,000 x 64 float32 on 2
cores: 1 to 2 ms against 5 ms with equal recall), but the index need not read them all. They are
read after as many searches as pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from exec_nodes.arrow.filter_rows import among, live_rows
from exec_nodes.base.columns import ADDRESS_BYTES, RowAddresses
from exec_nodes.lance.fragments import all_addresses
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.runs import LiveRun, ResidentRuns, Run
from exec_nodes.resident.store import STORE, Key
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from exec_nodes.vectors.column import Flags, Metric, VectorColumn, code_bytes
from memwal_native import VectorCodes

# Bytes of an element in memory: float16 is widened to float32.
_LEAST_BYTES = 4
T = TypeVar("T")
VectorRun = LiveRun[VectorColumn]


@dataclass(frozen=True)
class VectorReader:
    """Reads vectors of a Lance table (`Builder`), and makes the codes that `metrics` need."""

    source: LanceSource
    column: str
    metrics: frozenset[Metric]

    @property
    def row_bytes(self) -> int:
        kind = self.source.field(self.column).type
        width = kind.value_type.bit_width // 8
        elements = kind.list_size * (width if width == 1 else max(width, _LEAST_BYTES))
        return int(elements + ADDRESS_BYTES + len(coded(self.metrics)) * code_bytes(kind.list_size))

    def build(self, fragments: Sequence[Any]) -> VectorColumn:
        field = self.source.field(self.column)
        values = pa.chunked_array(self.source.every_value(field, fragments), field.type)
        vectors = VectorColumn.decoded(values, all_addresses(fragments))
        for metric in coded(self.metrics):
            vectors.codes(metric)
        return vectors

    def nbytes(self, value: VectorColumn) -> int:
        return value.nbytes + len(coded(value.metrics)) * value.coded_bytes


def resident_vectors(
    source: Source, column: str, metric: Metric, *, eager: Callable[[], bool]
) -> Sequence[VectorRun] | None:
    """All vectors of a source if they are in memory or worth being kept there.

    A MemTable's always are. A Lance table's are read at the first call if `eager` says so,
    otherwise after several calls, in the background, as an index can be asked meanwhile. None until
    then, and if they are too large for the store. They serve later versions too.
    """
    if isinstance(source, MemTableSource):
        codes = partial(_growing_codes, source.identity, column)
        vectors = VectorColumn.decoded(*source.column(column), codes)
        return [LiveRun(Run(vectors), {})]
    if not isinstance(source, LanceSource):
        return None
    if source.field_id(column) is None:
        return []
    builder = VectorReader(source, column, frozenset([metric]))
    runs = _runs(source, column)
    coverage = runs.read(builder, Admission.search, eager=eager)
    if coverage.unread:
        return None
    uncoded = [
        live_run
        for live_run in coverage.runs
        if coded(builder.metrics) - set(live_run.run.value.metrics)
    ]
    for live_run in uncoded:
        live_run.run.value.codes(metric)
    if uncoded:
        runs.recount(builder)
    return coverage.runs


def extend(source: LanceSource, columns: Iterable[str]) -> None:
    """Read and code the vectors that a version adds to those resident for other versions."""
    for column in columns:
        runs = _runs(source, column)
        if runs.take_use():
            metrics = (live_run.run.value.metrics for live_run in runs.coverage().runs)
            runs.extend(VectorReader(source, column, frozenset[Metric]().union(*metrics)))


def coded(metrics: Iterable[Metric]) -> frozenset[Metric]:
    """The metrics that vectors are coded for."""
    return frozenset(metrics) - {"hamming"}


def is_resident(source: LanceSource, column: str) -> bool:
    """Whether all vectors of a Lance table are in memory."""
    return source.field_id(column) is not None and not _runs(source, column).coverage().unread


def _runs(source: LanceSource, column: str) -> ResidentRuns[VectorColumn]:
    return source.runs("vectors", source.field_id(column))


def live_flags(source: Source, run: VectorRun, mask: RowAddresses) -> Flags | None:
    """For each position, whether `source` has the row and `mask`, sorted, has not; None if all
    count."""
    if not isinstance(source, LanceSource):
        return live_rows(run.run.value.addresses, mask)

    def make() -> tuple[Flags | None]:
        here = among(run.run.value.addresses, source.addresses(run.fragments.values()))
        unmasked = live_rows(run.run.value.addresses, mask)
        if here.all():
            return (unmasked,)
        return (here if unmasked is None else here & unmasked,)

    return derived(source, run.run.fragments, mask, make, _flag_bytes)[0]


def derived(
    source: Source,
    what: Hashable,
    mask: RowAddresses,
    make: Callable[[], T],
    size: Callable[[T], int],
) -> T:
    """The result of `make` for a source's mask, kept until another mask comes."""
    key = Key("vector flags", (source.identity,), what)
    kept: tuple[RowAddresses, T] | None = STORE.get(key)
    if kept is not None and kept[0] is mask:
        return kept[1]
    made = make()
    STORE.put(key, (mask, made), mask.nbytes + size(made))
    return made


def _flag_bytes(made: tuple[Flags | None]) -> int:
    return 0 if made[0] is None else made[0].nbytes


def _growing_codes(
    identity: Hashable, column: str, vectors: VectorColumn, metric: Metric
) -> VectorCodes:
    """The codes of a MemTable's vectors; only the rows since the last search are coded."""
    key = Key("vector codes", (identity,), (column, metric))
    codes: VectorCodes | None = STORE.get(key)
    if codes is None or len(codes) < len(vectors):
        with STORE.locked(key):
            codes = vectors.coded(STORE.get(key), metric)
            STORE.put(key, codes, codes.nbytes)
    return codes
