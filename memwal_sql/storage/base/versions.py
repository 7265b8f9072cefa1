"""The versions of the base table that Lance keeps, and the MemWAL index that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exec_nodes.base.tasks import map_concurrently
from exec_nodes.resident.store import Key, Scope
from memwal_sql.errors import NotFoundError, UnsupportedError
from memwal_sql.storage.base.manifest import read_index_section
from memwal_sql.storage.base.memwal_index import IndexDetails, details_in
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.paths import BASE_VERSIONS_FOLDER, base_version_of
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.snapshot_file import decode_regions, external_path
from planner.regions.spec import RegionSpec

_BYTES = 512  # bytes of a version without its details


@dataclass(frozen=True, slots=True)
class BaseVersion:
    """One version of the base table.

    `timestamp` is when it was committed, in seconds since 1970, by its committer's clock.
    `details` is None where the version has no MemWAL index of the format that we know. `operation`
    is what made it, see `IndexSection`.
    """

    version: int
    timestamp: float
    details: IndexDetails | None
    operation: str | None = None


def version_numbers(store: ObjectStore, folder: str = "") -> list[int]:
    """The versions that are there, ascending: one listing. `folder` is that of another table than
    the base."""
    listed = store.list(f"{folder}/{BASE_VERSIONS_FOLDER}" if folder else BASE_VERSIONS_FOLDER)
    numbers = (base_version_of(meta.path) for meta in listed)
    return sorted(number for number in numbers if number is not None)


def read_base_version(store: ObjectStore, version: int) -> BaseVersion | None:
    """One version; None when Lance has cleaned it up."""
    try:
        section = read_index_section(store, version)
    except NotFoundError:
        return None
    try:
        index = details_in(section)
    except UnsupportedError:  # the older format
        index = None
    details = None if index is None else index.details
    return BaseVersion(version, section.timestamp, details, section.operation)


def base_versions(store: ObjectStore, scope: Scope) -> tuple[BaseVersion, ...]:
    """Every version that is there, ascending; each is read once as long as `scope` keeps it."""
    kept = scope.store

    def key_of(meta: ObjectMeta) -> Key:
        return scope.key("base version", (meta.path, meta.size, meta.modified))

    def read(meta: ObjectMeta) -> BaseVersion | None:
        number, key = base_version_of(meta.path), key_of(meta)
        version: BaseVersion | None = kept.get(key)
        if version is None and number is not None:
            version = read_base_version(store, number)
            # Without a time, a number that was used again could not be told from the one before.
            if version is not None and meta.modified is not None:
                kept.put(
                    key, version, _BYTES + len(version.details.message if version.details else b"")
                )
        return version

    listed = list(store.list(BASE_VERSIONS_FOLDER))
    present = {key_of(meta) for meta in listed}
    kept.evict_where("base version", lambda key: scope.is_own(key) and key not in present)
    read_versions = map_concurrently(read, listed) if store.remote else map(read, listed)
    return tuple(
        sorted((v for v in read_versions if v is not None), key=lambda version: version.version)
    )


def recorded_manifests(
    store: ObjectStore, details: IndexDetails, specs: Sequence[RegionSpec] = ()
) -> list[RegionManifest] | None:
    """The region states recorded in `details`; None when none were, or their file has gone.

    Every progress mark gives the index a new folder and so orphans an external snapshot (protocol
    rule 23). Region values are known for the regions of `specs`.
    """
    if details.snapshot_ts_millis == 0:
        return None
    if details.num_regions == 0:
        return []
    path = external_path(str(details.index_uuid))
    try:
        data = details.inline_snapshots or store.get(path)
    except NotFoundError:
        return None
    return decode_regions(data, specs)
