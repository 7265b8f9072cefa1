"""Making, listing and dropping named checkpoints.

The order of steps makes a checkpoint and a collection safe against each other, without clocks: a
checkpoint is recorded before it looks at the collectors' floors; a collector raises the floors
before it looks at the checkpoints, and deletes after that. So one of the two sees the other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pyarrow as pa

from exec_nodes.lance.errors import BASE_NAME, is_not_found, lance_panics
from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    MemWalError,
    OutcomeUnknownError,
    RetryError,
)
from memwal_sql.life_log import life_log
from memwal_sql.maintain.checkpoint.records import (
    Checkpoint,
    all_checkpoints,
    check_name,
    encode_snapshot,
    find,
    write,
)
from memwal_sql.maintain.details import latest_dataset
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot
from memwal_sql.read.snapshots import SnapshotCollector
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.decoding import LAST_SECOND
from memwal_sql.storage.records.gc_watermarks import Watermark, read_watermarks
from memwal_sql.storage.retries import over_conflicts

_log = life_log(__name__)

_TIME = pa.timestamp("ms", "UTC")
CHECKPOINTS = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("base_version", pa.int64(), nullable=False),
        pa.field("created", _TIME, nullable=False),
        pa.field("expires", _TIME),
        pa.field("expired", pa.bool_(), nullable=False),
        pa.field("regions", pa.int64(), nullable=False),
    ]
)

Expires = datetime | timedelta | None


def make_checkpoint(
    context: TableContext,
    collector: SnapshotCollector,
    base_of: Callable[[int], BaseTable],
    name: str,
    expires: Expires = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Hold the table as a strong reader sees it now, under a name; returns the base version.

    `base_of` gives a base version that `collector` has just read. Raises InvalidCallError when the
    name is in use or does not fit, or when it would have expired already.
    """
    check_name(name)
    now = clock()
    until = _seconds(expires, now)
    latest = find(context.store, name)
    if latest is not None and latest.is_live(now):
        raise InvalidCallError(
            f"there is a checkpoint {name!r} already, of {_text(latest.created)}: choose another "
            "name, or drop it first"
        )
    numbers = count(1 if latest is None else latest.number + 1)

    def pin() -> int:
        pinned = collector.pin("strong")
        base = base_of(pinned.version)
        pinned = _unmerged(pinned, base)
        regions = encode_snapshot(pinned, base.info.region_specs)
        made = Checkpoint(name, next(numbers), pinned.version, now, until, regions)
        if not write(context.store, made):
            raise InvalidCallError(f"somebody else is making the checkpoint {name!r} now")
        try:
            if not (_tag(context, made) and _is_whole(context, pinned)):
                raise ConflictError("files were collected while it was made")
        except RetryError as error:
            try:
                with unbounded():
                    _release(context, replace(made, number=next(numbers), dropped=True), made.tag)
            except RetryError:
                raise OutcomeUnknownError(
                    f"the checkpoint {name!r} may be there, and hold nothing: drop it, and make it "
                    f"again: {error}"
                ) from error
            raise
        _log.info("checkpointed %s as %r: version %d", context.uri, name, pinned.version)
        return pinned.version

    return over_conflicts(pin, f"checkpoint {name!r} of {context.uri}")


def drop_checkpoint(
    context: TableContext, name: str, clock: Callable[[], float] = time.time
) -> None:
    """Let go of a checkpoint's files, and of its name. Raises InvalidCallError for an unknown one;
    one that expired may be dropped too."""
    check_name(name)
    checkpoint = find(context.store, name)
    if checkpoint is None or checkpoint.dropped:
        raise InvalidCallError(_unknown(context, name, clock()))
    dropped = replace(checkpoint, number=checkpoint.number + 1, created=clock(), dropped=True)
    _release(context, dropped, checkpoint.tag)
    _log.info("dropped checkpoint %r of %s", name, context.uri)


def live_checkpoint(
    context: TableContext, name: str, clock: Callable[[], float] = time.time
) -> Checkpoint:
    """The checkpoint of a name. Raises InvalidCallError when there is none, or it has expired."""
    check_name(name)
    now = clock()
    checkpoint = find(context.store, name)
    if checkpoint is None or checkpoint.dropped:
        raise InvalidCallError(_unknown(context, name, now))
    if not checkpoint.is_live(now):
        raise InvalidCallError(
            f"the checkpoint {name!r} of {context.uri} expired at "
            f"{_text(checkpoint.expires or now)}: its files may have been "
            "collected; open another one, or the table as it is now"
        )
    return checkpoint


def list_checkpoints(context: TableContext, clock: Callable[[], float] = time.time) -> pa.Table:
    """One row per checkpoint that was not dropped, by name."""
    now = clock()
    rows = [
        {
            "name": checkpoint.name,
            "base_version": checkpoint.version,
            "created": _moment(checkpoint.created),
            "expires": None if checkpoint.expires is None else _moment(checkpoint.expires),
            "expired": not checkpoint.is_live(now),
            "regions": len(checkpoint.snapshot().regions),
        }
        for checkpoint in all_checkpoints(context.store)
        if not checkpoint.dropped
    ]
    return pa.Table.from_pylist(rows, CHECKPOINTS)


def _unmerged(pinned: PinnedSnapshot, base: BaseTable) -> PinnedSnapshot:
    """Without the generations that the base version holds: there is no need to keep them."""
    merged = base.details.merged_generations

    def unmerged(region: PinnedRegion) -> PinnedRegion:
        manifest = region.manifest
        after = merged.get(manifest.region_id, 0)
        kept = tuple(
            generation
            for generation in manifest.flushed_generations
            if generation.generation > after
        )
        return replace(region, manifest=replace(manifest, flushed_generations=kept))

    return replace(pinned, regions=tuple(map(unmerged, pinned.regions)))


def _is_whole(context: TableContext, pinned: PinnedSnapshot) -> bool:
    """Whether no collector has come so far that it may not have seen the record in time."""
    watermarks = read_watermarks(context.store)
    for region in pinned.regions:
        watermark = watermarks.get(region.manifest.region_id, Watermark())
        oldest = min((g.generation for g in region.manifest.flushed_generations), default=None)
        flushed = region.manifest.replay_after_wal_entry_position
        if oldest is not None and oldest <= watermark.generation:
            return False
        if flushed < watermark.wal and flushed + 1 < region.wal_end:
            return False
    return True


def _tag(context: TableContext, checkpoint: Checkpoint) -> bool:
    """Tag the base version; False when it was cleaned up meanwhile."""
    try:
        with lance_panics(BASE_NAME, context.uri):
            latest_dataset(context, for_tags=True).tags.create(checkpoint.tag, checkpoint.version)
    except MemWalError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if is_not_found(error):
            return False
        if not _is_tagged(context, checkpoint):
            raise RetryError(
                f"the base version {checkpoint.version} of {context.uri} could not be tagged, make "
                f"the checkpoint again: {error}"
            ) from error
    return True


def _is_tagged(context: TableContext, checkpoint: Checkpoint) -> bool:
    """Whether the tag is there, which the record has given to this checkpoint alone: the answer to
    the request that put it may have been lost."""
    with lance_panics(BASE_NAME, context.uri), suppress(OSError, ValueError, RuntimeError):
        found = latest_dataset(context, for_tags=True).tags.list().get(checkpoint.tag)
        return found is not None and bool(found["version"] == checkpoint.version)
    return False


def _release(context: TableContext, dropped: Checkpoint, tag: str) -> None:
    if not write(context.store, dropped):
        raise RetryError(f"the checkpoint {dropped.name!r} is being changed by somebody else")
    try:
        delete_tag(context, tag)
    except RetryError as error:
        kind = type(error).__name__
        _log.warning("%s: the tag %s is left to the collector: %s", context.uri, tag, kind)


def delete_tag(context: TableContext, tag: str) -> None:
    """Remove a tag from the base table; one that has gone already is passed over."""
    with lance_panics(BASE_NAME, context.uri), suppress(OSError, ValueError, RuntimeError):
        latest_dataset(context).tags.delete(tag)


def _seconds(expires: Expires, now: float) -> float | None:
    if expires is None:
        return None
    if isinstance(expires, timedelta):
        until = now + expires.total_seconds()
    elif isinstance(expires, datetime) and expires.tzinfo is not None:
        until = expires.timestamp()
    else:
        raise InvalidCallError(
            f"expires={expires!r} must be a timedelta, or a datetime with a time zone"
        )
    if not math.isfinite(until) or until <= now:
        raise InvalidCallError(f"expires={expires!r} is not in the future")
    if until > LAST_SECOND:  # which no record can say
        raise InvalidCallError(
            f"expires={expires!r} is beyond the year 9999: leave it out, and the checkpoint does "
            "not expire"
        )
    return until


def _unknown(context: TableContext, name: str, now: float) -> str:
    names = [
        checkpoint.name for checkpoint in all_checkpoints(context.store) if checkpoint.is_live(now)
    ]
    return f"{context.uri} has no checkpoint {name!r}; it has {names}"


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(seconds: float) -> str:
    return _moment(seconds).isoformat(timespec="seconds")
