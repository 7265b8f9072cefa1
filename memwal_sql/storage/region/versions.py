"""The versions of a region's manifest in a store.

They are immutable files, numbered from 1. A commit creates the next number or loses; which of
the two happened is settled by a nonce (protocol rule 3), and a number that garbage collection has
already passed is never won (rule 8).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack
from uuid import UUID

from memwal_sql.errors import (
    ConflictError,
    CorruptFileError,
    MemWalError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage import paths
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.decoding import decoding, json_object, whole_number
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.records.intent import TransactionName
from memwal_sql.storage.region.manifest import (
    FlushedGeneration,
    RegionManifest,
    RegionStatus,
    decode_manifest,
    encode_manifest,
    stored_values,
)
from memwal_sql.storage.region.values import Types
from memwal_sql.storage.retries import over_conflicts
from planner.regions.values import RegionValue

_MOST_HINT_BYTES = 256


class ManifestChanges(TypedDict, total=False):
    """Fields of a `RegionManifest` that a commit changes."""

    writer_epoch: int
    replay_after_wal_entry_position: int
    wal_entry_position_last_seen: int
    current_generation: int
    flushed_generations: tuple[FlushedGeneration, ...]
    region_values: Mapping[str, RegionValue] | None
    status: RegionStatus
    published: Mapping[str, int]
    last_transaction: int
    transactions: tuple[TransactionName, ...]


class ManifestConflictError(ConflictError):
    """Somebody else committed this version of a region manifest first; `latest` is theirs."""

    def __init__(self, message: str, latest: RegionManifest) -> None:
        super().__init__(message)
        self.latest = latest


def region_ids(store: ObjectStore) -> list[UUID]:
    """The regions that have a folder, in no order; a region that is being made may lack a
    manifest."""
    folders = map(paths.region_of, store.list_folders(paths.MEM_WAL_FOLDER))
    return [region for region in folders if region is not None]


class RegionManifests:
    """The versions of one region's manifest in a store.

    `value_types` are the types of the region's values by field id, as `region_values.value_types`
    gives them for a spec. They are needed to create a region that has values, and to read the
    values of one that native code wrote.
    """

    def __init__(
        self, store: ObjectStore, region_id: UUID, value_types: Types | None = None
    ) -> None:
        self._store = store
        self._region_id = region_id
        self._value_types = value_types or {}

    @property
    def region_id(self) -> UUID:
        return self._region_id

    @property
    def remote(self) -> bool:
        return self._store.remote

    @property
    def uri(self) -> str:
        """The table's."""
        return self._store.uri

    def with_types(self, manifest: RegionManifest) -> RegionManifest:
        """A manifest that was read without the types of values. Raises CorruptFileError."""
        path = paths.manifest_path(self._region_id, manifest.version)
        with decoding(path, "a region manifest"):
            message = pb.RegionManifest.FromString(manifest.message)
            return replace(manifest, region_values=stored_values(message, self._value_types))

    def read(self, version: int) -> RegionManifest:
        """One version. Raises `NotFoundError` when it was never written or is collected."""
        path = paths.manifest_path(self._region_id, version)
        manifest = decode_manifest(path, self._store.get(path), self._value_types)
        if manifest.region_id != self._region_id:
            raise CorruptFileError(f"{path} belongs to region {manifest.region_id}")
        return manifest

    def latest(self, hint: RegionManifest | None = None) -> RegionManifest:
        """The newest version; `hint` is one that was read before.

        Raises `NotFoundError` when the region has no manifest.
        """
        return self._latest_from(hint.version if hint is not None else self._read_hint(), hint)

    def recent(self) -> tuple[RegionManifest, bool]:
        """A version that was the newest when the hint was written, for who looks for newer ones
        anyway; the newest where the hint names none that is in use. Also whether, on an object
        store, none was above it when it was there. Raises as `latest`."""
        hinted = self._read_hint()
        # A hint file of 1 may be as old as the region, see `_latest_from`.
        if hinted is not None and hinted > 1:
            with contextlib.suppress(CorruptFileError):  # a newer one may be whole
                manifests: list[RegionManifest | None] = []
                is_newest = run_with(
                    self.remote,
                    lambda: self.remote and not self.exists(hinted + 1),
                    lambda: manifests.append(self._in_use(hinted, None)),
                )
                if manifests[0] is not None:
                    return manifests[0], is_newest
        return self.latest(), False

    def newer(self, than: RegionManifest) -> RegionManifest | None:
        """The newest version when it is newer than `than`, else None."""
        start = than.version + self.exists(than.version + 1)
        if start == than.version and self.exists(start):
            return None
        latest = self._latest_from(start, than)
        return latest if latest.version > than.version else None

    def _latest_from(self, start: int | None, hint: RegionManifest | None) -> RegionManifest:
        """The newest version; `start` has been there, unless it is None."""
        if start is not None:
            version = start
            while self.exists(version + 1):
                version += 1
            manifest = self._in_use(version, hint)
            # A hint file of 1 may be as old as the region, and version 1 was collected since.
            if manifest is not None and (version > 1 or hint is not None):
                return manifest
        return self._latest_listed()

    def _in_use(self, version: int, newest: RegionManifest | None) -> RegionManifest | None:
        """Read a listed version, unless it is `newest`. None if it was deleted since, or put into
        collected territory: then the one before it is gone."""

        def read() -> RegionManifest | MemWalError | None:
            if newest is not None and newest.version == version:
                return newest if self.exists(version) else None
            try:
                return self.read(version)
            except MemWalError as error:
                return error

        results: list[RegionManifest | MemWalError | None] = []
        exists = run_with(
            self.remote,
            lambda: version == 1 or self.exists(version - 1),
            lambda: results.append(read()),
        )
        if not exists or isinstance(results[0], NotFoundError):
            return None
        if isinstance(results[0], MemWalError):
            raise results[0]
        return results[0]

    def create(self, manifest: RegionManifest) -> RegionManifest:
        """Create the region, or return the latest manifest of whoever created it before."""
        first = self.put_first(manifest)
        if first is None:
            return self.latest()
        try:
            with unbounded():
                versions = self.versions()
        except StoreUnavailableError as error:
            path = paths.manifest_path(self._region_id, 1)
            raise _written_but(path, error) from error
        newest = self.newest_of(first, versions)
        if newest is first:
            # The hint comes last: below version 1 nothing shows that it was collected.
            self._write_hint(1)
        return newest

    def put_first(self, manifest: RegionManifest) -> RegionManifest | None:
        """Put version 1; None where somebody else has. Whether it counts is asked of `newest_of`,
        with the `versions` that are there afterwards."""
        first = replace(manifest, version=1, nonce=_new_nonce())
        path = paths.manifest_path(self._region_id, 1)
        data = encode_manifest(first, self._value_types)
        if settle_put(self._store, path, data) is not None:
            return None
        return replace(first, message=data)

    def newest_of(self, first: RegionManifest, versions: Sequence[int]) -> RegionManifest:
        """Our version 1, or the newest one where there are others: they were as quick, or its
        number was free because it had been collected. Raises `NotFoundError` where none is
        there, as somebody has removed the region."""
        if versions and versions[-1] == 1:
            return first
        if 2 not in versions:
            self._withdraw(paths.manifest_path(self._region_id, 1))
        return self._latest_listed()

    def commit(self, old: RegionManifest, **changes: Unpack[ManifestChanges]) -> RegionManifest:
        """Create the version after `old`, which differs from it by `changes`.

        Raises `ManifestConflictError`, with the latest manifest, when somebody else did, and
        `OutcomeUnknownError` when that could not be found out.
        """
        new = replace(old, **changes, version=old.version + 1, nonce=_new_nonce())
        path = paths.manifest_path(self._region_id, new.version)
        data = encode_manifest(new, self._value_types)
        if settle_put(self._store, path, data) is not None:
            raise self._conflict(new.version)
        # The look comes after the put has landed, or somebody could commit and collect in between.
        # A hint decides nothing, so that it does not wait for what is found.
        with unbounded():  # what was written is to be known to count, or not
            exists = run_with(
                self.remote,
                lambda: self._is_still_stored(old.version, path),
                lambda: self._write_hint(new.version),
            )
            if not exists:
                self._withdraw(path)
        if not exists:
            raise self._conflict(new.version)
        return replace(new, message=data)

    def change(
        self,
        latest: RegionManifest,
        changes: Callable[[RegionManifest], ManifestChanges],
    ) -> RegionManifest:
        """Commit the version after `latest`, or after the newest one where others were first.

        `changes` gives what differs from the version before; where that is nothing, none is
        committed and it is returned. Raises `RetryError` when others keep coming in between.
        """

        def commit() -> RegionManifest:
            nonlocal latest
            changed = changes(latest)
            if not changed:
                return latest
            try:
                return self.commit(latest, **changed)
            except ManifestConflictError as conflict:
                latest = conflict.latest
                raise

        return over_conflicts(commit, f"region {self._region_id}")

    def _conflict(self, version: int) -> ManifestConflictError:
        latest = self.latest()
        return ManifestConflictError(
            f"version {version} of region {self._region_id} was committed by somebody else;"
            f" the latest is {latest.version}, of writer epoch {latest.writer_epoch}",
            latest,
        )

    def _is_still_stored(self, version: int, written: str) -> bool:
        try:
            return self.exists(version)
        except StoreUnavailableError as error:
            raise _written_but(written, error) from error

    def _withdraw(self, path: str) -> None:
        """Remove an object in collected territory, and the hint, which may name it; readers pass
        over both where that fails."""
        with contextlib.suppress(MemWalError):
            self._store.delete([path, paths.version_hint_path(self._region_id)])

    def exists(self, version: int) -> bool:
        """Whether a version is there: one request."""
        return self._store.exists(paths.manifest_path(self._region_id, version))

    def versions(self) -> list[int]:
        """All versions that are there, ascending: one listing."""
        listed = self._store.list(paths.manifest_folder(self._region_id))
        numbers = (paths.numbered(meta.path, paths.MANIFEST_SUFFIX) for meta in listed)
        return sorted(number for number in numbers if number is not None)

    def _latest_listed(self) -> RegionManifest:
        versions = self.versions()
        if not versions:
            raise NotFoundError(f"region {self._region_id} has no manifest")
        return self.read(versions[-1])

    def _read_hint(self) -> int | None:
        """What the hint says; None if it is missing or damaged, as nothing depends on it."""
        path = paths.version_hint_path(self._region_id)
        try:
            data = self._store.get_range(path, 0, _MOST_HINT_BYTES)
            with decoding(path, "a version hint"):
                return whole_number(json_object(data)["version"], 1)
        except MemWalError:
            return None

    def _write_hint(self, version: int) -> None:
        data = json.dumps({"version": version}, separators=(",", ":")).encode()
        with contextlib.suppress(MemWalError):
            self._store.put(paths.version_hint_path(self._region_id), data)


def _written_but(path: str, error: StoreUnavailableError) -> OutcomeUnknownError:
    """The error for a version that landed, without it being known whether it counts."""
    return OutcomeUnknownError(f"{path} was written, but could not be checked; try again: {error}")


def _new_nonce() -> bytes:
    return os.urandom(16)
