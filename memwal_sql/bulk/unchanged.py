"""Whether others have written the rows that a statement has read, when it publishes its changes.

The publisher has claimed the regions by then, so nobody else writes them. A region that nobody has
claimed or written since the statement read it is as it was. In others the rows of the statement's
keys are read again, as they were and as they are now: where they differ, others came first. So it
does not matter how rows were written, merged or replaced meanwhile. Rows that the statement has
read and does not change are not compared, as in a statement of `mw.sql` (docs/transactions.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.project import same_columns
from exec_nodes.keys.keys import KeyBatch
from memwal_sql.bulk.changes import NEW, READ, bits_of
from memwal_sql.bulk.read import PARALLEL, StagedRegion
from memwal_sql.bulk.stored import Get, StoredRows
from memwal_sql.errors import ConflictError, KeysExistError, ReopenError, UnsupportedError
from memwal_sql.read.lookup import get_in
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot, PinnedTable
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.write.conditional.resolve import SHOWN_KEYS, key_names
from memwal_sql.write.region_writer import RegionWriter


@dataclass(frozen=True)
class RowsRead:
    """What a statement has read: a table's state; None if it has read nothing. `moves` says that it
    gives rows other keys."""

    context: TableContext
    pinned: PinnedSnapshot | None
    moves: bool = False

    def check(
        self,
        base: BaseTable,
        parts: Sequence[StagedRegion],
        writers: Sequence[RegionWriter],
        get: Get,
    ) -> None:
        """Raise ConflictError if others have written a row since that a part changes,
        KeysExistError if a new row has the key of another one, and ReopenError if columns are
        others. The writers have claimed the parts' regions, `base` is of after that, and `get` has
        the rows of now."""
        self._check_columns(base)
        stored = StoredRows(base.info, get)
        pairs = list(zip(parts, writers, strict=True))
        map_in_threads(lambda pair: self._check(base, *pair, stored), pairs, PARALLEL)

    def check_apart(self, parts: Sequence[StagedRegion]) -> None:
        """Raise UnsupportedError if parts that are too large for one transaction must be one."""
        if self.moves and len(parts) > 1:
            raise UnsupportedError(
                f"the statement gives rows of {self.context.uri} other keys, and is too large for "
                "one transaction: nothing was written, change fewer rows at once"
            )

    def _check_columns(self, base: BaseTable) -> None:
        if self.pinned is None or self.pinned.version == base.version:
            return
        stored = self._table.base(self.pinned.version).stored
        if not same_columns(base.stored, stored):
            raise columns_changed(self.context.uri, differences(stored, base.stored))

    def _check(
        self, base: BaseTable, part: StagedRegion, writer: RegionWriter, stored: StoredRows
    ) -> None:
        key, stays = list(base.info.primary_key), self._stays(base, writer)
        for kept in part.batch.pieces:
            keys = part.batch.keys(kept)
            bits, keys = bits_of(keys), keys.select(key)
            new = keys.filter(pa.array(bits == NEW))
            for some, found, _ in stored.lookups(new, ()):
                if len(found):
                    self._refuse_new(base, writer, some.take(pa.array(found)), stays)
            if not stays:
                self._compare(base, writer, keys.filter(pa.array((bits & READ) != 0)), stored)

    def _stays(self, base: BaseTable, writer: RegionWriter) -> bool:
        """Whether nobody has claimed or written a region since it was read. A merge counts as a
        write here: an overwrite looks like one."""
        if self.pinned is None:
            return True  # only whether keys are there is asked, and they are looked up now
        region = self._regions.get(writer.region_id)
        epoch = 0 if region is None else region.manifest.writer_epoch
        if base.version != self.pinned.version or writer.epoch != epoch + 1:
            return False
        wal = self.context.wal(writer.region_id)
        for position in range(1 if region is None else region.wal_end, writer.end + 1):
            entry = wal.read(position)
            if entry is None or (not entry.is_fence and wal.verdict(entry)):
                return False
        return True

    def _compare(
        self, base: BaseTable, writer: RegionWriter, keys: pa.Table, stored: StoredRows
    ) -> None:
        columns = base.info.schema.names
        for some, _, now in stored.lookups(keys, columns):
            before = self._before(writer, some, columns)
            now = now.select(before.column_names)
            if before.equals(now):
                continue
            # Values that are not a number are equal to nothing.
            were, are = _texts(before, base), _texts(now, base)
            changed = [key for key in were.keys() | are.keys() if were.get(key) != are.get(key)]
            if changed:
                self._refuse(writer, changed)

    def _refuse_new(
        self, base: BaseTable, writer: RegionWriter, keys: pa.Table, stays: bool
    ) -> NoReturn:
        key = list(base.info.primary_key)
        before = keys if stays else self._before(writer, keys, key)
        names = _names(before.select(key))
        if not names:
            self._refuse(writer, _names(keys))
        raise KeysExistError(
            f"other rows of {self.context.uri} have {len(names)} of the keys that the statement "
            f"writes, such as {names[:SHOWN_KEYS]}: nothing was written; if others wrote them "
            "while it ran, run it again",
            frozenset(names),
        )

    def _refuse(self, writer: RegionWriter, names: Sequence[object]) -> NoReturn:
        shown = sorted(map(repr, names))
        more = f" and {len(shown) - SHOWN_KEYS} more" if len(shown) > SHOWN_KEYS else ""
        raise ConflictError(
            f"others wrote the keys {shown[:SHOWN_KEYS]}{more} of {self.context.uri} after the "
            "statement read them: nothing was written, run it again",
            frozenset(names),
            table=self.context.uri,
            region=writer.region_id,
        )

    def _before(self, writer: RegionWriter, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows of keys as they were read, in those of the columns that there were. Raises
        SourceGoneError if parts were collected."""
        if self.pinned is None:
            return keys.slice(0, 0)
        region = self._regions.get(writer.region_id)
        regions = () if region is None else (region,)
        pinned = PinnedSnapshot(self.pinned.version, regions)
        snapshot = self._table.snapshot(pinned)
        known = [name for name in columns if name in snapshot.info.schema.names]
        return get_in(snapshot, KeyBatch(keys), known)

    @lazy_property
    def _regions(self) -> dict[UUID, PinnedRegion]:
        regions = () if self.pinned is None else self.pinned.regions
        return {region.manifest.region_id: region for region in regions}

    @lazy_property
    def _table(self) -> PinnedTable:
        return PinnedTable(self.context)


def columns_changed(uri: str, how: str) -> ReopenError:
    """The error of a statement that has read other columns than the table has."""
    return ReopenError(
        f"the columns of {uri} have changed since the statement read them ({how}): nothing was "
        "written, run it again"
    )


def _names(keys: pa.Table) -> list[object]:
    return [name for batch in keys.to_batches() for name in key_names(batch)]


def _texts(rows: pa.Table, base: BaseTable) -> dict[object, str]:
    """Each row as a text, by its key."""
    names = _names(rows.select(list(base.info.primary_key)))
    return dict(zip(names, map(repr, rows.to_pylist()), strict=True))
