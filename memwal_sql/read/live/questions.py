"""The questions by which native code finds that nothing has changed since a look at a table."""

from __future__ import annotations

import os

from memwal_native import LiveQuestions
from memwal_sql.read.closed import RegionRead, TableRead
from memwal_sql.read.live.taken import Taken
from memwal_sql.state.base_table import BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.paths import MEM_WAL_FOLDER, manifest_path, wal_path


def questions_of(
    context: TableContext, tracker: BaseTracker, read: TableRead, taken: Taken
) -> LiveQuestions | None:
    """What the next look at a whole table would ask if nothing is new since `read`, after which the
    live rows had what was `taken`, of this look and others.

    None where the next look could find more: a region has entries that may count after all, or the
    base table has another version than the one that the look has checked. None on object stores,
    too: there it takes a clock to trust such answers.
    """
    store, regions = context.store, taken.regions
    is_whole = read.open_of is not None and not read.pruned and len(read.regions) == len(regions)
    if not isinstance(store, LocalStore) or not is_whole or taken.version != read.base.version:
        return None
    if not all(region.is_quiet for region in regions.values()):
        return None
    checked = tracker.checked_file(taken.version)
    if checked is None:
        return None

    def path(name: str) -> bytes:
        return os.fsencode(f"{store.uri}/{name}")

    def files(region: RegionRead) -> tuple[bytes, bytes, bytes, bytes]:
        of, version = region.reader.region_id, region.unflushed.manifest.version
        end = regions[of].end
        entries = path(wal_path(of, end + 1)), path(wal_path(of, end + 2))
        return (*entries, path(manifest_path(of, version + 1)), path(manifest_path(of, version)))

    newer, newest, stamp, seconds = checked
    ids = taken.base.info.field_ids
    return LiveQuestions(
        read.voided,
        seconds,
        [files(region) for region in read.regions],
        (path(newer), path(newest)),
        stamp,
        f"{store.uri}/{MEM_WAL_FOLDER}",
        [str(region.reader.region_id) for region in read.regions],
        [ids.get(name, -1) for name in taken.base.info.schema.names],
    )
