"""The base table at one version, together with the MemWAL index recorded in that version."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any
from urllib.parse import quote

import lance
import pyarrow as pa

from exec_nodes.arrow.nested import check_width
from exec_nodes.evolution.project import CurrentSchema
from exec_nodes.lance.errors import BASE_NAME, bytes_of_lance, damaged, lance_errors
from exec_nodes.sources.lance_source import LanceSource
from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    RepairError,
    SourceGoneError,
    TableReplacedError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.state.enable import is_begun
from memwal_sql.state.schema import logical_schema, primary_key_of
from memwal_sql.storage.base.field_ids import field_ids
from memwal_sql.storage.base.index_identity import is_own
from memwal_sql.storage.base.indexes import BaseIndexes
from memwal_sql.storage.base.manifest import OTHER_VERSION, read_etag, read_tags
from memwal_sql.storage.base.memwal_index import (
    FoundDetails,
    IndexDetails,
    read_details,
    read_details_at,
)
from memwal_sql.storage.base.sessions import BaseSession
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.concurrent import ask_remote, map_remote
from memwal_sql.storage.objects.local import FileStamp
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import MEM_WAL_FOLDER, base_manifest_path, base_manifest_path_v1
from memwal_sql.storage.records.table import check_incarnation, made_again
from memwal_sql.storage.wal.entry import entry_schema
from planner.model import TableInfo
from planner.regions.storage import from_storage

_FULL_CHECK_SECONDS = 30.0


@dataclass(frozen=True)
class BaseTable:
    """One version of the base table: its rows, its schema and its MemWAL index."""

    version: int
    dataset: Any
    found: FoundDetails
    info: TableInfo
    source: LanceSource = field(repr=False)
    indexes: BaseIndexes = field(repr=False)
    names: CurrentSchema = field(repr=False)

    @property
    def stored(self) -> pa.Schema:
        """The schema of entries and generations, an `entry_schema`."""
        return self.names.schema

    @property
    def details(self) -> IndexDetails:
        """The MemWAL index."""
        return self.found.details

    def check_own_index(self, uri: str) -> None:
        """Raise RepairError if another program has made the MemWAL index in place of the table's
        own: its merge progress is not that of the regions."""
        if not is_own(self.dataset.schema.metadata, self.details):
            raise RepairError(
                f"another program has dropped the MemWAL index of {uri} and made another one, as "
                "LanceDB does to change its write spec: what was merged is not known any more. If "
                "nothing was written since, restore the version that table.check() names; else "
                "write the rows into a new table: docs/lancedb.md shows how"
            )

    @property
    def owners(self) -> frozenset[Hashable]:
        """The owners of resident artefacts of this version."""
        source, segments = self.source, self.found.segments
        return frozenset({source.identity, *source.whole_fragments, self.etag, *segments})

    @property
    def etag(self) -> str:
        """The etag of the version's manifest file."""
        return self.found.etag


def open_latest(context: TableContext, session: Any = None, *, for_tags: bool = False) -> Any:
    """The latest version of the base table as a Lance dataset, with a handle of its own.

    `for_tags` opens a local folder as an object store. By its path, Lance makes the folder of tags
    under a percent-encoded name, too: an empty `%C3%BC` beside the table `ü`.

    Raises TableReplacedError when there is no table any more, CorruptFileError for a version that
    is damaged.
    """
    try:
        with lance_errors(BASE_NAME, context.uri):
            uri = lance_uri(context.uri)
            if for_tags and os.path.isabs(uri):
                uri = f"file-object-store://{quote(uri)}"
            return lance.dataset(uri, storage_options=context.storage_options, session=session)
    except SourceGoneError as error:
        raise TableReplacedError(
            f"{context.uri} is gone: restore the folder from a copy, or create the table again"
        ) from error


def load_base(context: TableContext, dataset: Any, before: TableInfo | None = None) -> BaseTable:
    """Read what a snapshot needs of `dataset`'s version; keeps `before` if it is still true.

    Raises InvalidCallError when it has no MemWAL index, ConflictError when it is from before the
    table had one, and not the newest, UnsupportedError for rows that are too wide, RepairError when
    it has no primary key any more, TableReplacedError when it lost its index to an overwrite
    (protocol rule 22), CorruptFileError when its manifest is damaged, and ReopenError when another
    table is at this place now.
    """
    if not dataset.version:
        raise damaged(BASE_NAME, context.uri, "the manifest of its newest version holds zeros")
    details = read_details(context.store, dataset)
    if details is None and is_begun(context.store, dataset):
        if dataset.version < open_latest(context).version:
            raise ConflictError(
                f"{context.uri} was not whole at version {dataset.version}, and was changed since: "
                "open it again"
            )
        raise InvalidCallError(
            f"{context.uri} is being made or enabled, or that call was interrupted: make the "
            "call of create_table or enable again"
        )
    # Lance reads the schema from its memory: types that it does not know are a panic there.
    with (
        decoding(base_manifest_path(dataset.version), "a Lance manifest", OTHER_VERSION),
        bytes_of_lance(),
    ):
        metadata = dataset.schema.metadata
        primary_key = primary_key_of(dataset.schema)
    check_incarnation(
        context.store,
        metadata,
        has_index=details is not None,
        is_copy=details is not None and details.is_copy,
        record=context.record,
    )
    first = context.first_version
    if first is not None and read_etag(context.store, 1) not in (first, None):
        raise made_again(context.uri)
    if details is None:
        if context.store.list_folders(MEM_WAL_FOLDER):
            raise TableReplacedError(
                f"{context.uri} has regions but lost its MemWAL index, as an overwrite of the base "
                f"table does: restore an earlier version, or move {MEM_WAL_FOLDER} away"
            )
        raise InvalidCallError(
            f"{context.uri} is a Lance table without a MemWAL index: "
            "make it one with memwal_sql.enable(uri, primary_key=...)"
        )
    if not primary_key:
        raise RepairError(
            f"{context.uri} has lost its primary key, as when plain Lance drops a key column: "
            "restore a version before that, lance.dataset(uri, version=N).restore()"
        )
    schema = logical_schema(dataset.schema)
    ids = field_ids(dataset)
    columns = {field_id: name for name, field_id in ids.items()}
    specs = tuple(from_storage(spec, columns) for spec in details.details.region_specs)
    info = TableInfo(schema, primary_key, specs, ids)
    # Defaults are in the metadata.
    if before == info and before.schema.equals(schema, check_metadata=True):
        info = before
    else:
        check_width(schema)
    source = _source(context, dataset, details, info)
    indexes = BaseIndexes(
        dataset, lance_uri(context.uri), details.details, context.scope, context.storage_options
    )
    names = CurrentSchema(stored_columns(dataset))
    return BaseTable(dataset.version, dataset, details, info, source, indexes, names)


def stored_columns(dataset: Any) -> pa.Schema:
    """The value of `BaseTable.stored` for a version."""
    return entry_schema(logical_schema(dataset.schema), dataset.lance_schema)


def _source(
    context: TableContext, dataset: Any, details: FoundDetails, info: TableInfo
) -> LanceSource:
    return LanceSource.base(dataset, info, etag=details.rows_tag, read_file=context.store.get)


class BaseTracker:
    """Finds the latest version of the base table at the price of one or two probes.

    The *latest* version is the one in the store, and the *loaded* one is the latest that this
    handle has read.
    """

    def __init__(
        self, context: TableContext, loaded: BaseTable, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._clock = clock
        self._checked = clock()
        self._session = BaseSession(loaded.dataset.session())
        self._lock = Lock()
        self._loaded = loaded
        self._path = _names(loaded)
        self._stamps: dict[int, Hashable | None] = {loaded.version: loaded.found.stamp}

    @property
    def loaded(self) -> BaseTable:
        """The latest version loaded so far, without a request."""
        return self._loaded

    def latest(self) -> BaseTable:
        """The latest version in the store."""
        loaded = self.loaded
        return self.reload() if self.is_replaced(loaded.version) else loaded

    def latest_verified(self) -> BaseTable:
        """`latest` for writers, with as many requests: a table that was deleted and made again may
        have reached the same number, and writes to regions of the old one would be lost.

        Raises ReopenError when another table is there now.
        """
        loaded = self.loaded
        probes = partial(self._may_have_newer, loaded.version), partial(self._is_the_same, loaded)
        newer, same = ask_remote(self._context.store.remote, probes)
        return self.reload() if newer or not same else loaded

    def check_same(self) -> None:
        """Raise ReopenError when another table is there than the loaded one."""
        if not self._is_the_same(self.loaded):
            self.reload()

    def reload(self) -> BaseTable:
        """Ask Lance for the latest version, whatever the probes say.

        Raises ReopenError when another table is there now, and UnknownFormatError when this package
        has become too old to read the table.
        """
        self._context.check_reads()
        with self._lock:
            before = self.loaded
            # A handle of its own, as readers still hold the old version's.
            dataset = open_latest(self._context, self._session.session)
            if dataset.version == before.version:
                etag, stamp = read_tags(self._context.store, before.version)
                if etag == before.etag:
                    self._checked = self._clock()
                    self._stamps = {before.version: stamp}
                    return before
                # Lance's session holds files of the old table under the names of the new one's.
                dataset = open_latest(self._context)
                self._session = BaseSession(dataset.session())
            self._loaded = load_base(self._context, dataset, before.info)
            self._path = _names(self._loaded)
            self._stamps = {dataset.version: self._loaded.found.stamp}
            self._checked = self._clock()
            self._session.replaced()
            return self._loaded

    def is_there(self, version: int) -> bool:
        """Whether there is such a version, at the price of a probe."""
        return self._context.store.exists(self._path(version))

    def newest_of(
        self,
        version: int,
        details: FoundDetails,
        follows: Callable[[FoundDetails, FoundDetails], bool],
    ) -> tuple[int, FoundDetails] | None:
        """The newest version, and what was found in it, step by step from a version with its
        `details`. None if there is another version under its number by now, or if one of them does
        not follow the one before, which `follows` says of a version and the one before. Raises
        NotFoundError for a version that was cleaned up."""
        # A table that was deleted and made again has versions of its own under these numbers.
        if read_etag(self._context.store, version) != details.etag:
            return None
        while self.is_there(version + 1):
            newer = read_details_at(self._context.store, version + 1)
            if newer is None or not follows(newer, details):
                return None
            version, details = version + 1, newer
        return version, details

    def preserves_rows(self, version: int, etag: str, last: BaseTable) -> bool:
        """Whether `last`, and each version between, has preserved the rows of the one before, from
        a version with this `etag` on, which may be another one by now. They are read at once.
        Raises NotFoundError for one that was cleaned up."""
        store = self._context.store
        read = partial(read_details_at, store)
        steps = [*map_remote(store.remote, read, range(version, last.version)), last.found]
        return (steps[0] is not None and steps[0].etag == etag) and all(
            older is not None and newer is not None and newer.preserves_rows_of(older)
            for older, newer in pairwise(steps)
        )

    def checked_file(self, version: int) -> tuple[str, str, FileStamp, float] | None:
        """What `is_replaced` asks on a local disk about a version that it has said to be as it was:
        the paths of the next version and of this one, its stamp, and for how many seconds that
        suffices."""
        stamp = self._stamps.get(version)
        if not isinstance(stamp, FileStamp):
            return None
        left = _FULL_CHECK_SECONDS - (self._clock() - self._checked)
        return self._path(version + 1), self._path(version), stamp, left

    def is_replaced(self, version: int) -> bool:
        """Whether a newer version may exist, or another one may have its number: two requests.

        Lance's cleanup may have removed version + 1; then it removed this one as well. Asked side
        by side, a cleanup between the two may pass unnoticed until the next full check: it hides no
        row of a region, as generations that are not merged in a version must all be listed.
        """
        probes = partial(self._may_have_newer, version), partial(self._is_as_it_was, version)
        newer, same = ask_remote(self._context.store.remote, probes)
        return newer or not same

    def _may_have_newer(self, version: int) -> bool:
        # A tagged version outlives cleanup, so that the probes could miss a newer one for ever; as
        # it is, only what is cleaned up before it is so old makes them late.
        overdue = self._clock() - self._checked > _FULL_CHECK_SECONDS
        return self._context.store.exists(self._path(version + 1)) or overdue

    def _is_as_it_was(self, version: int) -> bool:
        """Whether a version is there, and its file the one that was found at first."""
        stamp = self._context.store.stamp(self._path(version))
        stamp_before = self._stamps.get(version)
        if stamp_before is None:
            self._stamps[version] = stamp_before = stamp
        return stamp is not None and stamp == stamp_before

    def _is_the_same(self, base: BaseTable) -> bool:
        return read_etag(self._context.store, base.version) == base.etag


def _names(base: BaseTable) -> Callable[[int], str]:
    """How the table names its versions, as old ones have another scheme until they are migrated."""
    is_old = base.found.path == base_manifest_path_v1(base.version)
    return base_manifest_path_v1 if is_old else base_manifest_path
