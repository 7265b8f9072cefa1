"""Bringing the rows of regions with the same values together in one of them (protocol rule 11).

Readers refuse such regions from the moment when there are two until this is done, so that nobody
sees a state in between. The order of steps, each of which may be done again after a crash:

1. Claim both regions, which fences everybody else, and flush what their logs hold.
2. Of the keys that both have, the caller says whose rows are newer; once rows of the region that
   stays are merged, what the base table has of a key, or that it has nothing, counts as that
   region's. What loses is written to a file of its own under `_memwal_sql/set_aside/`.
3. Publish what is missing into the region that stays, under the same claim: a row that somebody
   wrote meanwhile makes it fail.
4. Seal the other region, so that nobody claims it any more.
5. Record the regions, mark the sealed one as merged, and bring indexes up to date with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import Mask
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import KeyBatch, key_column
from memwal_sql.bulk.publish import Publisher
from memwal_sql.bulk.publish_region import RegionBatch, RegionPublisher
from memwal_sql.errors import ConflictError, RepairError
from memwal_sql.maintain.details import latest_dataset, maintenance, mark_only
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.read.lookup import get_in
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.paths import RECORD_FOLDER
from memwal_sql.storage.region.manifest import RegionStatus
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.write.ingest.normalise import Normaliser
from planner.model import RegionSources, Snapshot
from planner.regions.ids import lancedb_id
from planner.regions.values import RegionValue

SET_ASIDE_FOLDER = f"{RECORD_FOLDER}/set_aside"
_JOB = "repair_regions"
_DELETED = "_deleted"


class RepairParts(Thresholds):
    """Of a region that goes, the rows of so many keys are moved at once."""

    keys = 65_536


@dataclass(frozen=True, slots=True)
class RegionRepair:
    """What became of two regions with the same values.

    Attributes:
        values: theirs.
        kept: the region that has all rows now.
        sealed: the other one, which takes no writers any more.
        moved: how many keys of the sealed region, deleted ones too, the other one has taken over.
        set_aside: how many rows, or deletes, have lost to another row of their key.
        files: where those are, relative to the table's root: Arrow files with the columns of the
            table, `_region`, and `_deleted`.
    """

    values: Mapping[str, RegionValue]
    kept: UUID
    sealed: UUID
    moved: int
    set_aside: int
    files: tuple[str, ...]


class RegionRepairer:
    """Repairs one table. `record` records the states of all regions, `index` brings the indexes up
    to date."""

    def __init__(
        self,
        context: TableContext,
        base: Callable[[], BaseTable],
        publisher: Publisher,
        record: Callable[[], object],
        index: Callable[[], object],
        report: Report,
    ) -> None:
        self._context = context
        self._base = base
        self._publisher = publisher
        self._record = record
        self._index = index
        self._report = report

    def repair(self, regions: Sequence[RegionReader], newer: UUID | None) -> list[RegionRepair]:
        """Bring the rows of regions, which all have the same values, together in one."""
        kept = self._kept(regions, newer)
        others = [one for one in regions if one is not kept]
        return [self._join(kept, one, newer) for one in others]

    def _kept(self, regions: Sequence[RegionReader], newer: UUID | None) -> RegionReader:
        """The region that stays: the one that LanceDB goes on to write, if there is one."""
        info, first = self._base().info, regions[0]
        spec = info.spec(first.spec_id)
        derived = None if spec is None else lancedb_id(spec, first.values or {})
        # One that is sealed has given its rows away in a repair that did not end.
        alive = [one for one in regions if one.refresh().status is not RegionStatus.SEALED]
        for wanted in (derived, newer):
            found = next((one for one in alive if one.region_id == wanted), None)
            if found is not None:
                return found
        return min(alive or regions, key=lambda one: one.region_id)

    def _join(self, kept: RegionReader, other: RegionReader, newer: UUID | None) -> RegionRepair:
        base = self._base()
        into = self._publisher.claimed(base, kept.refresh(), kept.values)
        sealed = other.refresh().status is RegionStatus.SEALED  # by a repair that did not end
        away = None if sealed else self._publisher.claimed(base, other.manifest, other.values)
        pair = _Pair(base, kept, other, newer, sealed=sealed)
        if not sealed and newer not in (kept.region_id, other.region_id):
            pair.check_agreement(self._context.uri)
        files, moved = self._move(pair, into)
        if away is not None:
            away.seal()
        self._record()
        self._mark(other)
        self._index()
        return RegionRepair(
            values=dict(kept.values or {}),
            kept=kept.region_id,
            sealed=other.region_id,
            moved=moved,
            set_aside=sum(rows for _, rows in files),
            files=tuple(path for path, _ in files),
        )

    def _move(self, pair: _Pair, into: RegionPublisher) -> tuple[list[tuple[str, int]], int]:
        files, moved = [], 0
        for number, part in enumerate(pair.parts()):
            moved += part.moved.num_rows
            if part.lost.num_rows:
                path = f"{SET_ASIDE_FOLDER}/{uuid4().hex}.arrow"
                self._context.store.put_if_absent(path, _file_of(part.lost))
                files.append((path, part.lost.num_rows))
            done = min((number + 1) * RepairParts.keys, pair.keys.num_rows)
            self._report(Progress(_JOB, pair.other.name, done, pair.keys.num_rows, "rows"))
        if moved:
            rows = (part.moved for part in pair.parts() if part.moved.num_rows)
            into.publish_claimed(RegionBatch((), moved, pair.nbytes, lambda: rows))
        return files, moved

    def _mark(self, region: RegionReader) -> None:
        """Mark all of a sealed region as merged."""
        last = region.refresh().current_generation - 1

        def mark() -> None:
            with maintenance(self._context, _JOB):
                merged = self._base().details.merged_generations.get(region.region_id, 0)
                if merged < last and not mark_only(
                    latest_dataset(self._context), {region.region_id: last}
                ):
                    raise ConflictError("a merge came in between")

        over_conflicts(mark, self._context.uri)


@dataclass(frozen=True, slots=True)
class _Part:
    """Of some keys, what the region that stays gets, as a MemTable has it, and what is lost."""

    moved: pa.Table
    lost: pa.Table


class _Pair:
    """Two regions whose rows are all in flushed generations, and what the caller says of them.

    Once rows of `kept` are merged, its row of a key may be in the base table, and be the newest of
    all; or be missing there, as a delete of it is merged. Nothing says whose the row in the base
    table is, so it counts as `kept`'s. Where only rows of `other` are merged, it counts as
    `other`'s; a key that is missing there counts as no delete, as most are new ones of `kept`.

    What a sealed region has is in the other one since it was sealed, so whatever that one has now
    is newer.
    """

    def __init__(
        self,
        base: BaseTable,
        kept: RegionReader,
        other: RegionReader,
        newer: UUID | None,
        *,
        sealed: bool,
    ) -> None:
        self.other = other
        self._other_wins = newer == other.region_id and not sealed
        self._normaliser = Normaliser(base.info.schema, base.info.primary_key)
        merged = base.details.merged_generations
        mine = merged.get(kept.region_id, 0) > 0
        theirs = merged.get(other.region_id, 0) > 0 and not mine and not sealed
        self._kept_rows = _Rows(base, kept, below=mine)
        self._other_rows = _Rows(base, other, below=theirs)
        self.keys = self._other_rows.keys
        if theirs:
            below = [self._in_base(one) for one in _slices(self._kept_rows.keys)]
            self.keys = _distinct(pa.concat_tables([self.keys, *below]))
        self._in_both = self._kept_rows.has(self.keys)

    @property
    def nbytes(self) -> int:
        """About how much may be moved."""
        return sum(one.bytes or 0 for one in self.other.manifest.flushed_generations)

    def check_agreement(self, uri: str) -> None:
        """Raise RepairError where a key has different rows in the two regions."""
        different, example = 0, ""
        for keys, both in self._chunks():
            mine, theirs = self._of_both(keys, both)
            unequal = _unequal(mine, theirs)
            different += int(np.count_nonzero(unequal))
            if not example and unequal.any():
                at = int(np.flatnonzero(unequal)[0])
                example = " and ".join(
                    str(rows.slice(at, 1).to_pylist()[0]) for rows in (mine, theirs)
                )
        if different:
            kept, other = self._kept_rows.region.region_id, self.other.region_id
            raise RepairError(
                f"{uri}: {different} keys have different rows in the regions {kept} and {other}, "
                f"such as {example}, and nothing says which are newer. Name the region whose rows "
                "are: `memwal repair --newer REGION`, or table.repair_regions(newer=...); the "
                "other rows are kept in a file"
            )

    def parts(self) -> Iterator[_Part]:
        """All keys of the other region, some at a time."""
        for keys, both in self._chunks():
            mine, theirs = self._of_both(keys, both)
            unequal = pa.array(_unequal(mine, theirs))
            if self._other_wins:
                moved = self._other_rows.of(keys)
                lost = _labelled(mine.filter(unequal), self._kept_rows.region)
            else:
                moved = self._other_rows.of(keys.filter(pa.array(~both)))
                lost = _labelled(theirs.filter(unequal), self.other)
            yield _Part(self._stored(moved), lost)

    def _chunks(self) -> Iterator[tuple[pa.Table, Mask]]:
        start = 0
        for keys in _slices(self.keys):
            yield keys, self._in_both[start : start + keys.num_rows]
            start += keys.num_rows

    def _in_base(self, keys: pa.Table) -> pa.Table:
        """Those of the keys that have a row in the other region or in the base table below it."""
        return keys.filter(pc.invert(self._other_rows.of(keys)[_DELETED]))

    def _of_both(self, keys: pa.Table, both: Mask) -> tuple[pa.Table, pa.Table]:
        shared = keys.filter(pa.array(both))
        return self._kept_rows.of(shared), self._other_rows.of(shared)

    def _stored(self, rows: pa.Table) -> pa.Table:
        """Rows and deletes as a MemTable has them."""
        live = rows.filter(pc.invert(rows[_DELETED])).drop_columns([_DELETED])
        dead = rows.filter(rows[_DELETED]).select(self.keys.column_names)
        parts = [self._normaliser.upserts(live), self._normaliser.tombstones(dead)]
        return pa.Table.from_batches([one for one in parts if one.num_rows], parts[0].schema)


class _Rows:
    """The rows of one region that are not merged, and `below` them those of the base table.

    `keys` has the key of every row and every tombstone that is not merged once.
    """

    def __init__(self, base: BaseTable, region: RegionReader, *, below: bool = False) -> None:
        self.region = region
        self._info = base.info
        sources = region.sources(base, region.refresh(), ())
        one = RegionSources(region.region_id, region.name, region.spec_id, region.values, sources)
        self._below = below
        self._snapshot = Snapshot(base.info, base.source if below else None, (one,), 0)
        key = pa.schema([base.info.schema.field(name) for name in base.info.primary_key])
        self.keys = _distinct(
            pa.concat_tables([key.empty_table(), *(one.keys().table for one in sources)])
        )
        self._codes = KeyCodes(key_column(self.keys.columns))

    def has(self, keys: pa.Table) -> Mask:
        """Which of the keys the region has, as rows or as deletes; over the base table, all."""
        if self._below:
            return np.ones(keys.num_rows, np.bool_)
        present = np.zeros(keys.num_rows, np.bool_)
        if self.keys.num_rows and keys.num_rows:
            present[self._codes.find(key_column(keys.columns))[0]] = True
        return present

    def of(self, keys: pa.Table) -> pa.Table:
        """The newest row of each of these keys, which are distinct, in their order; `_deleted` is
        true, and all but the key null, where it is a tombstone, or no row."""
        schema, key = self._info.schema, self._info.primary_key
        live = get_in(self._snapshot, KeyBatch(keys), schema.names)
        places = {one: row for row, one in enumerate(KeyBatch(live.select(list(key))).values)}
        rows = pa.array([places.get(one) for one in KeyBatch(keys).values], pa.int64())
        columns = [(keys if f.name in key else live)[f.name] for f in schema]
        taken = [
            column if field.name in key else column.take(rows)
            for column, field in zip(columns, schema, strict=True)
        ]
        fields = [*(field.with_nullable(True) for field in schema), pa.field(_DELETED, pa.bool_())]
        return pa.Table.from_arrays([*taken, rows.is_null()], schema=pa.schema(fields))


def _slices(keys: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, keys.num_rows, RepairParts.keys):
        yield keys.slice(start, RepairParts.keys)


def _distinct(keys: pa.Table) -> pa.Table:
    _, first = np.unique(KeyCodes(key_column(keys.columns)).codes, return_index=True)
    return keys.take(pa.array(first))


def _unequal(some: pa.Table, others: pa.Table) -> Mask:
    """Which rows differ. As texts, in which NaN equals itself."""
    pairs = zip(some.to_pylist(), others.to_pylist(), strict=True)
    return np.array([repr(one) != repr(other) for one, other in pairs], np.bool_)


def _labelled(rows: pa.Table, region: RegionReader) -> pa.Table:
    return rows.append_column("_region", pa.repeat(str(region.region_id), rows.num_rows))


def _file_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
