"""Vectors kept in memory, and what is derived from a mask, under one byte bound."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import TypeVar

from exec_nodes.sources.at_once import in_background
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import RowAddresses, Source
from exec_nodes.vectors.column import Flags, VectorColumn
from exec_nodes.vectors.metrics import Metric
from memwal_native import VectorCodes

# A search in memory beats one through an index as long as the vectors fit (200,000 x 64 float32
# on 2 cores: 1 to 2 ms against 5 ms with equal recall), but the index need not read them all. They
# are read once so many searches were made as pay for it: one reads about as much as this.
_BYTES_PER_SEARCH = 4 * 1024 * 1024
# Putting near vectors together takes so many times as long as reading them.
_ARRANGING = 8
# With fewer, a search spends most of its time elsewhere.
_FEWEST_ARRANGED = 50_000
_ADDRESS_BYTES = 8
_COUNTER_BYTES = 200
T = TypeVar("T")

# Sources' identities are unique in the process, so all tables can share one bound.
VECTORS = ByteCache()


def held_vectors(
    source: Source, column: str, row_bytes: int, metric: Metric, *, eager: Callable[[], bool]
) -> VectorColumn | None:
    """All vectors of a source, `row_bytes` each, if they are in memory or worth being kept there.

    A MemTable's always are. They are read at the first call if `eager` says so; otherwise after
    some, in the background and with the codes that `metric` needs, if any, as an index can be asked
    meanwhile. None until then, and if they are too many for the cache.
    """
    codes = partial(_held_codes, source, column)
    if isinstance(source, MemTableSource):
        return VectorColumn.decoded(*source.column(column), codes)
    key = (source.identity, "vectors", column)
    found: VectorColumn | None = VECTORS.get(key)
    if found is not None:
        return found
    size = source.rows * (row_bytes + _ADDRESS_BYTES)
    if size > VECTORS.largest:
        return None

    def read() -> VectorColumn:
        return VECTORS.compute(
            key,
            lambda: VectorColumn.decoded(*source.column(column), codes),
            lambda column: column.nbytes,
        )

    if eager():
        return read()
    if _worth(source, column, "reading", size):
        in_background(read if metric == "hamming" else lambda: read().codes(metric))
    return None


def live_flags(source: Source, column: VectorColumn, mask: RowAddresses) -> Flags:
    """By position in a held column: whether the row is not masked."""

    def make() -> Flags:
        return column.flags(column.positions(mask), False)

    if isinstance(source, MemTableSource):
        return make()
    return derived(source, "live", mask, make, lambda flags: flags.nbytes)


def derived(
    source: Source,
    what: str,
    mask: RowAddresses,
    make: Callable[[], T],
    size: Callable[[T], int],
) -> T:
    """What `make` makes of a source's mask, kept until another mask comes."""
    key = (source.identity, what)
    kept: tuple[RowAddresses, T] | None = VECTORS.get(key)
    if kept is not None and kept[0] is mask:
        return kept[1]
    made = make()
    VECTORS.put(key, (mask, made), mask.nbytes + size(made) + _COUNTER_BYTES)
    return made


def _worth(source: Source, column: str, work: str, size: int) -> bool:
    """Whether the searches counted so far pay for `work` on `size` bytes; counts this one."""
    key = (source.identity, "searches", column, work)
    searches = (VECTORS.get(key) or 0) + 1
    paid: bool = searches * _BYTES_PER_SEARCH >= size
    VECTORS.put(key, 0 if paid else searches, _COUNTER_BYTES)
    return paid


def _held_codes(source: Source, column: str, held: VectorColumn, metric: Metric) -> VectorCodes:
    """Those of a source, kept; of a MemTable only the rows since the last search are coded."""
    key = (source.identity, "codes", column, metric)
    known: VectorCodes | None = VECTORS.get(key)
    if known is None or len(known) < len(held):
        with VECTORS.locked(key):
            known = held.coded(VECTORS.get(key), metric)
            VECTORS.put(key, known, known.nbytes)
    elif len(known) >= _FEWEST_ARRANGED and not isinstance(source, MemTableSource):
        begun, work = (*key, "arranging"), _ARRANGING * held.nbytes
        if VECTORS.get(begun) is None and _worth(source, column, f"{metric} cells", work):
            VECTORS.put(begun, True, _COUNTER_BYTES)  # once, whether it pays or not
            in_background(partial(_arrange, key, known))
    return known


def _arrange(key: Hashable, codes: VectorCodes) -> None:
    codes.arrange()
    VECTORS.put(key, codes, codes.nbytes)
