"""The state of a table at a time, as far as its files still tell it.

A base version says when it was committed. Manifests of regions and WAL entries do not: theirs are
the times of their files, by the store's clock. So the state at a time is the newest base version of
that time, and for each region its manifest of that time with the log up to then. A transaction is
in it if its record was there by then, so that all regions and all tables agree. Where a collection
has deleted a part of that, nobody knows which rows there were, and the state is refused.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from memwal_sql.errors import InvalidCallError, TornEntryError
from memwal_sql.maintain.gc.listing import RegionFiles, survey_regions
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot
from memwal_sql.read.recorded import check_parts, recorded_regions
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.versions import read_base_version
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.paths import BASE_VERSIONS_FOLDER, base_version_of
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.storage.region.progress import check_progress
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.storage.wal.torn import whole_end


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, and the newest base version that had been committed by then.

    Attributes:
        seconds: since 1970.
        after: the next version, None for none.
    """

    seconds: float
    version: int
    after: int | None

    @property
    def text(self) -> str:
        return datetime.fromtimestamp(self.seconds, UTC).isoformat()


def moment_of(
    store: ObjectStore,
    uri: str,
    timestamp: datetime | str,
    clock: Callable[[], float] = time.time,
) -> Moment:
    """The moment of a time. Raises InvalidCallError for a time without a zone, one in the future,
    one before the oldest version or the oldest file, and one between versions that are left."""
    try:
        moment = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise ValueError("it has no time zone")
    except ValueError as error:
        raise InvalidCallError(
            f"timestamp={timestamp!r}: {error}; give a datetime with a time zone, or text such as "
            '"2026-01-31T12:00:00+00:00"'
        ) from None
    seconds, now = moment.timestamp(), clock()
    if seconds > now:
        raise InvalidCallError(
            f"timestamp={timestamp!r} is in the future: this machine's clock says {_text(now)}; "
            "leave the time out to read the newest rows"
        )

    def committed(version: int) -> float:
        version_read = read_base_version(store, version)
        return float("-inf") if version_read is None else version_read.timestamp

    files = {
        number: meta
        for meta in store.list(BASE_VERSIONS_FOLDER)
        if (number := base_version_of(meta.path)) is not None
    }
    numbers = sorted(files)
    place = bisect_right(numbers, seconds, key=committed)
    if numbers and not place:
        raise InvalidCallError(
            f"timestamp={timestamp!r} is before the oldest version of {uri} that is left, number "
            f"{numbers[0]} of {_text(committed(numbers[0]))}"
        )
    version = numbers[place - 1] if numbers else 1
    after = numbers[place] if place < len(numbers) else None
    if after is not None and after != version + 1:
        raise InvalidCallError(
            f"timestamp={timestamp!r} is between two versions of {uri}, and those in between were "
            f"cleaned up, one of which may be that of the time: version={version} reads the last "
            f"before them, of {_text(committed(version))}, and version={after} the first after "
            f"them, of {_text(committed(after))}"
        )
    oldest = min((_modified(meta) for meta in files.values()), default=seconds)
    if oldest > seconds:
        raise InvalidCallError(
            f"timestamp={timestamp!r} is before the oldest file of {uri}, of {_text(oldest)}: the "
            "folder was copied, and which rows it had before is not known; "
            f"version={version} reads what was recorded by then"
        )
    return Moment(seconds, version, after)


def state_at(context: TableContext, base: BaseTable, moment: Moment) -> PinnedSnapshot:
    """The state at a moment over its base version.

    Raises InvalidCallError where files that belong to it were collected, where the folder of a
    region was copied since, and where clocks contradict each other.
    """
    recorded = {region.region_id for region in recorded_regions(context, base) or ()}
    regions = survey_regions(context.store).regions
    for region_id in recorded:
        regions.setdefault(region_id, RegionFiles(region_id))

    records = _RecordTimes(context)

    def past(files: RegionFiles) -> PinnedRegion | None:
        is_recorded = files.region_id in recorded
        return _past(context, base, moment, files, records, is_recorded=is_recorded)

    states = map_remote(context.store.remote, past, regions.values())
    pinned = tuple(region for region in states if region is not None)
    check_parts(context, base, [manifest.manifest for manifest in pinned])
    return PinnedSnapshot(base.version, pinned)


class _RecordTimes:
    """When the records of transactions were put, for several threads."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._listed: dict[str, Mapping[str, ObjectMeta]] = {}

    def has_decided(self, wal: Wal, entry: WalEntry, moment: Moment) -> bool:
        """Whether the verdict over an intent was there at a moment. A record that home has handed
        over says itself when it was put, by the clock of who put it. Where the record is gone and
        the verdict is known by other files, it was."""
        intent = entry.intent
        if intent is None or wal.verdict(entry) is None:
            return intent is None
        home, listed = intent.home, self._listed.get(intent.home, {})
        if intent.id not in listed:
            listed = Transactions(self._context.home(home)).listed()
            self._listed[home] = listed
        if intent.id in listed:
            return _modified(listed[intent.id]) <= moment.seconds
        handed = Transactions(self._context.store)
        record = handed.read_handed(intent.id, intent.incarnation)
        return record is None or record.time.timestamp() <= moment.seconds


def _past(
    context: TableContext,
    base: BaseTable,
    moment: Moment,
    files: RegionFiles,
    records: _RecordTimes,
    *,
    is_recorded: bool,
) -> PinnedRegion | None:
    """A region at a moment; None where it had no rows. Raises as `state_at`."""
    manifests = RegionManifests(context.store, files.region_id)
    then = _last(files.manifests, moment)
    merged = base.details.merged_generations.get(files.region_id, 0)
    if then is None:
        if is_recorded or merged:
            _check_copied(base, moment, files)
        elif min(files.manifests, default=1) == 1:
            return None  # the region was made later
        raise _collected(context, moment, files)
    manifest = manifests.read(then)
    check_progress(manifests, manifest, merged)
    if merged >= manifest.current_generation:
        raise InvalidCallError(
            f"at {moment.text} version {base.version} had generation {merged} of region "
            f"{files.region_id}, which was flushed later: the clock of who merged it is behind the "
            f"store's. Give a time before the version or after the flush; version={base.version} "
            "reads what was recorded by then"
        )
    needed = [
        generation for generation in manifest.flushed_generations if generation.generation > merged
    ]
    listed = len(needed) == max(0, manifest.current_generation - 1 - merged)
    if not listed or any(generation.path not in files.generations for generation in needed):
        raise _collected(context, moment, files)
    flushed = manifest.replay_after_wal_entry_position
    last = max(flushed, _last(files.wal, moment) or 0)
    following = min((entry for entry in files.wal if entry > last), default=last + 1)
    if any(entry not in files.wal for entry in range(flushed + 1, following)):
        raise _collected(context, moment, files)
    wal = context.wal(files.region_id)
    end = whole_end(wal, flushed + 1, last + 1, manifest.wal_entry_position_last_seen)
    return PinnedRegion(manifest, _decided_end(wal, flushed + 1, end, moment, records))


def _decided_end(wal: Wal, first: int, end: int, moment: Moment, records: _RecordTimes) -> int:
    """The end of a log, without what was undecided at a moment: nobody writes rows behind an intent
    before its record is there (protocol rule T6), only claims put fences there."""
    for position in range(end - 1, first - 1, -1):
        try:
            entry = wal.read(position)
        except TornEntryError:
            continue  # a fence above lists it as skipped
        if entry is None or (entry.intent is None and not entry.is_fence):
            break
        if entry.intent is not None:
            if records.has_decided(wal, entry, moment):
                break
            end = position
    return end


def _check_copied(base: BaseTable, moment: Moment, files: RegionFiles) -> None:
    """Raise InvalidCallError where a region of a version has no file of a time: fences stay in its
    log whatever is collected."""
    metas = [*files.manifests.values(), *files.wal.values()]
    oldest = min(map(_modified, metas), default=moment.seconds)
    if oldest > moment.seconds:
        raise InvalidCallError(
            f"{moment.text} is before the oldest file of region {files.region_id}, of "
            f"{_text(oldest)}, and version {base.version} has the region: its folder was copied, "
            f"and which rows it had before is not known; version={base.version} reads what was "
            "recorded by then"
        )


def _last(files: Mapping[int, ObjectMeta], moment: Moment) -> int | None:
    """The highest number whose file had been written; None if there is none."""
    return max((n for n, meta in files.items() if _modified(meta) <= moment.seconds), default=None)


def _modified(meta: ObjectMeta) -> float:
    if meta.modified is None:
        raise InvalidCallError(
            f"the store does not say when {meta.path} was written, so no time can be read: give a "
            "version or a checkpoint"
        )
    return meta.modified


def _collected(context: TableContext, moment: Moment, files: RegionFiles) -> InvalidCallError:
    after = "" if moment.after is None else f", and version={moment.after} the next one"
    return InvalidCallError(
        f"the state of {context.uri} at {moment.text} is not there any more: rows of region "
        f"{files.region_id} were flushed and collected since, and nobody knows which of these were "
        f"written by then. version={moment.version} reads the last state that was recorded "
        f"before{after}; table.checkpoint() holds a state with all its rows"
    )


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
