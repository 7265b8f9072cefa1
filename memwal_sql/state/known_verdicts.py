"""What a table's own logs and manifests say of a transaction whose record is gone."""

from __future__ import annotations

from memwal_sql.errors import CorruptFileError, NotFoundError
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.region.versions import RegionManifests, region_ids
from memwal_sql.storage.wal.log import Wal


def is_committed_by_any_region(store: ObjectStore, intent: Intent) -> bool:
    """Whether an entry or a manifest of a table says that a transaction is committed. Reads all
    that there are, so it is for transactions whose home is gone. Files that are damaged say
    nothing."""
    if not intent.attempt:
        return False
    regions = region_ids(store)

    def says_so(place: int) -> bool:
        region = regions[place]
        try:
            manifest = RegionManifests(store, region).latest()
        except (NotFoundError, CorruptFileError):
            return False
        wal = Wal(store, region)
        return intent.name in manifest.transactions or any(
            _says_so(wal, position, intent) for position in wal.positions()
        )

    return any(map_remote(store.remote, says_so, range(len(regions))))


def _says_so(wal: Wal, position: int, intent: Intent) -> bool:
    try:
        entry = wal.read(position)
    except CorruptFileError:
        return False
    notes = () if entry is None else entry.notes
    return any(note.counts and note.transaction == intent.name for note in notes)
