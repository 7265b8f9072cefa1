"""Up to where each region's files may have been collected (protocol rules 1 and 22).

The floors only rise, and they are raised before a file is deleted. So whoever holds on to files
and then finds no floor above them knows that they stay; and a base table that was restored to
merge progress below a floor is known to miss rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from memwal_sql.errors import ConflictError, NotFoundError, TableReplacedError
from memwal_sql.storage.decoding import decoding, whole_number
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import Record, Records
from memwal_sql.storage.retries import over_conflicts

_KEPT_VERSIONS = 2


@dataclass(frozen=True, slots=True)
class Watermark:
    """The last generation and the last WAL position that may have been collected; 0: none."""

    generation: int = 0
    wal: int = 0

    def raised_by(self, other: Watermark) -> Watermark:
        """The higher of both, each number for itself."""
        return Watermark(max(self.generation, other.generation), max(self.wal, other.wal))


Watermarks = Mapping[UUID, Watermark]


def read_watermarks(store: ObjectStore) -> Watermarks:
    """The floors of all regions of which something was collected."""
    records = Records(store, "collected")
    return _watermarks(records, _latest(records))


def raise_watermarks(store: ObjectStore, raised_marks: Watermarks) -> None:
    """Record that files up to `raised_marks` may be deleted from now on.

    Raises RetryError when other collectors kept recording theirs at the same time.
    """
    records = Records(store, "collected")
    latest = _latest(records)

    def put() -> None:
        nonlocal latest
        stored = _watermarks(records, latest)
        raised = dict(stored)
        for region, watermark in raised_marks.items():
            raised[region] = raised.get(region, Watermark()).raised_by(watermark)
        if raised == stored:
            return
        version = 1 if latest is None else latest.version + 1
        content = {"regions": {str(r): [f.generation, f.wal] for r, f in raised.items()}}
        latest = records.put(version, content)
        if latest is not None:
            raise ConflictError("another collector recorded what it collects")
        records.delete(records.versions()[:-_KEPT_VERSIONS])

    over_conflicts(put, store.uri)


def check_watermarks(
    store: ObjectStore, merged: Mapping[UUID, int], watermarks: Watermarks
) -> None:
    """Raise TableReplacedError when `merged`, the base table's merge progress, is below a floor:
    the rows of the generations between the two are gone then. `watermarks` are floors that were
    read before the progress was.
    """
    for region, watermark in watermarks.items():
        if merged.get(region, 0) < watermark.generation:
            raise TableReplacedError(
                f"{store.uri} was restored to a version that holds generations up to "
                f"{merged.get(region, 0)} of region {region}, and those up to "
                f"{watermark.generation} have been collected since: restore a newer version. If "
                "LanceDB has unset its write spec and set one, docs/lancedb.md shows the way out"
            )


def _latest(records: Records) -> Record | None:
    while True:
        with suppress(NotFoundError):  # deleted after it was listed: there is a newer one
            return records.latest()


def _watermarks(records: Records, record: Record | None) -> Watermarks:
    if record is None:
        return {}
    with decoding(records.path(record.version), "a record of what was collected"):
        regions = record.content["regions"].items()
        return {
            UUID(region): Watermark(whole_number(generation), whole_number(wal))
            for region, (generation, wal) in regions
        }
