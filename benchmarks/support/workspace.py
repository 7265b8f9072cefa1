"""The tables that several benchmarks share, made once, when first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import Ids, batches, merged, rows, shuffled
from benchmarks.support.native import NativeTable, put_all
from benchmarks.support.sizes import Sizes

GENERATIONS = 4
_BATCH_ROWS = 1_000


@dataclass(frozen=True)
class Upserts:
    """The rows of the base table and of each newer source, from old to new."""

    base: pa.Table
    newer: tuple[pa.Table, ...]

    @property
    def live(self) -> pa.Table:
        """What a reader must see, ordered by id."""
        return merged([self.base, *self.newer])


class Workspace:
    """A folder, the sizes of the run, and the shared tables in it. Closes what it opened."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder
        self.sizes = sizes
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @cached_property
    def upserts(self) -> Upserts:
        """A base and five newer sources: each a share of fresh keys, a few of them new to the
        table, and one twentieth as many keys of the source before."""
        sizes = self.sizes
        keys = shuffled(sizes.base_rows * 51 // 50)
        newer = [rows(ids, seed) for seed, ids in enumerate(_shares(keys, sizes.source_rows), 1)]
        base = rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
        return Upserts(base, tuple(newer))

    @cached_property
    def live(self) -> pa.Table:
        """The rows every reader of the shared tables must return."""
        return self.upserts.live

    @cached_property
    def plain(self) -> Any:
        """The limit: a Lance dataset of the live rows, with a btree on the key."""
        return plain_table(self.folder / "plain", self.live)

    @cached_property
    def ours(self) -> mw.Table:
        """Our table: base, four flushed generations and an open writer's MemTable."""
        table = enabled_table(self.folder / "ours", self.upserts.base)
        # The MemTable stays, however long the benchmarks before took.
        writer = self._open.enter_context(table.writer(durable=False, memtable_age_s=None))
        for part in self.upserts.newer[:GENERATIONS]:
            for batch in batches(part, _BATCH_ROWS):
                writer.upsert(batch)
            writer.flush()
        for batch in batches(self.upserts.newer[GENERATIONS], _BATCH_ROWS):
            writer.upsert(batch)
        return table

    @cached_property
    def native(self) -> NativeTable:
        """The peer's table: the same sources, all of them flushed but the last."""
        table = NativeTable(self.folder / "native", self.upserts.base)
        for part in self.upserts.newer[:GENERATIONS]:
            table.write_generation(batches(part, _BATCH_ROWS))
        return table

    @cached_property
    def native_writer(self) -> Any:
        """The peer's open writer, which holds the last source in its MemTable."""
        writer = self._open.enter_context(self.native.writer(durable=False))
        put_all(writer, batches(self.upserts.newer[GENERATIONS], _BATCH_ROWS))
        return writer


def _shares(keys: Ids, size: int) -> Iterable[Ids]:
    for number in range(GENERATIONS + 1):
        start = number * size
        again = keys[max(0, start - size) : max(0, start - size) + size // 20]
        share = keys[start : start + size]
        yield np.concatenate([share, again]) if number else share


def plain_table(folder: Path, rows_of_it: pa.Table) -> Any:
    """A plain Lance dataset with a btree on `id`."""
    lance.write_dataset(rows_of_it, folder).create_scalar_index("id", "BTREE")
    return lance.dataset(folder)


def enabled_table(folder: Path, base: pa.Table, **options: Any) -> mw.Table:
    """A MemWAL table over the given base rows; one region unless `regions` says otherwise."""
    lance.write_dataset(base, folder)
    return mw.enable(folder, primary_key="id", **options)
