"""Upgrades tables of the older MemWAL format (specification 3).

What was merged is in the base table and stays as it is. The rows of every other MemWAL are only in
its WAL, whose form is its writer's own: the caller gives a function that reads it, and the rows go
through a writer into regions of today.

Lance can't commit anything to a table with an index of the older format but the removal of that
index, so this comes first. The older index is kept in the table's record before, and while it
is there nobody opens the table: an upgrade that stopped anywhere is taken up by the next one, which
writes the same rows again in the same order.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pyarrow as pa

from memwal_sql.create import open_table
from memwal_sql.errors import InvalidCallError
from memwal_sql.legacy.format import (
    OlderMemWal,
    OlderState,
    decode_older,
    read_older_index,
)
from memwal_sql.life_log import life_log
from memwal_sql.maintain.progress import Progress, Report, report_nothing
from memwal_sql.state.base_table import load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.enable import (
    Uri,
    check_no_regions,
    check_unique,
    details_for,
    index_primary_key,
    key_and_spec,
    mark_table,
    open_lance,
)
from memwal_sql.storage.base.memwal_index import commit_details, drop_index, read_details
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import (
    UPGRADE_KEY,
    Records,
    TableRecord,
    table_content,
)
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.table import Table
from planner.regions.spec import RegionSpec
from planner.regions.text import Regions

_log = life_log(__name__)

ReadWal = Callable[[OlderMemWal], Iterable[Any]]
"""Yields the rows of a MemWAL in the order of its WAL entries, as anything Arrow with the table's
columns. A boolean column `_tombstone` marks rows that delete their key."""


@dataclass(frozen=True)
class _Begun:
    """An upgrade: the old index, whether it is in the table's record, and the number of that
    record."""

    message: bytes
    incarnation: UUID
    recorded: bool
    record_version: int

    @property
    def table_record(self) -> TableRecord:
        """The record that the table will have, as if it were there."""
        return TableRecord(self.incarnation, self.record_version)


def older_mem_wals(
    uri: Uri, storage_options: Mapping[str, str] | None = None
) -> list[OlderMemWal] | None:
    """The MemWALs that the older index of a table lists, by region and generation, also while an
    upgrade is under way; None for a table without one. Raises InvalidCallError where there is no
    table."""
    uri, store, dataset = _opened(uri, storage_options)
    begun = _begun(uri, store, dataset)
    return None if begun is None else decode_older(begun.message, uri)


def upgrade(
    uri: Uri,
    read_wal: ReadWal | None = None,
    primary_key: str | Sequence[str] | None = None,
    regions: Regions | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Report | None = None,
) -> Table:
    """Move a table of the MemWAL format before that of Lance 13 to the current one, and open it. A
    table of the current format is opened as it is; then leave out the other arguments.

    Args:
        read_wal: reads the WAL of a MemWAL that is not merged; needed when there is one.
        primary_key: may be left out when the table has one.
        regions: as for `create_table`. With `mw.manual()` the regions keep their names.
        progress: gets a record after every MemWAL.

    Raises InvalidCallError, before anything is changed, for a table without a MemWAL, for
    arguments that do not fit it, and with the list of what would be lost when there is a MemWAL to
    be read and no `read_wal`. A crash loses nothing: run it again. It then has to be given the same
    primary key and regions.
    """
    uri, store, dataset = _opened(uri, storage_options)
    begun = _begun(uri, store, dataset)
    if begun is None:
        older = read_wal, primary_key, regions
        return _current(uri, storage_options, has_arguments=older != (None, None, None))
    mem_wals = decode_older(begun.message, uri)
    _check_nothing_is_lost(uri, mem_wals, read_wal)
    keys, spec = key_and_spec(uri, dataset, primary_key, regions)
    if not begun.recorded:
        check_no_regions(store, uri)
        check_unique(dataset, keys)
        begun = _keep(uri, store, begun)
    _make_current(store, dataset, keys, spec, begun.incarnation)
    store.sync("")
    options = checked_options(storage_options) or None
    context = TableContext(uri, store, begun.table_record, options)
    if read_wal is not None:
        unread = [mem_wal for mem_wal in mem_wals if mem_wal.is_lost_without_its_wal]
        with Table(context, load_base(context, open_lance(uri, options))) as table:
            _move(table, unread, read_wal, spec.is_manual, progress or report_nothing)
    Records(store, "table").put(begun.record_version + 1, table_content(store, begun.incarnation))
    _log.info("upgraded %s: %d MemWALs of the older format", uri, len(mem_wals))
    return open_table(uri, storage_options=storage_options)


def _current(uri: str, options: Mapping[str, str] | None, *, has_arguments: bool) -> Table:
    """The table, which has today's format already."""
    table = open_table(uri, storage_options=options)
    if table.context.record is None:
        raise InvalidCallError(
            f"{uri} has no MemWAL index of an older format, and Lance or LanceDB has made it: open "
            "it as it is"
        )
    if has_arguments:
        raise InvalidCallError(
            f"{uri} has no MemWAL index of the older format: leave out read_wal, primary_key and "
            "regions"
        )
    return table


def _opened(uri: Uri, storage_options: Mapping[str, str] | None) -> tuple[str, ObjectStore, Any]:
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    return uri, store, open_lance(uri, options)


def _begun(uri: str, store: ObjectStore, dataset: Any) -> _Begun | None:
    """The upgrade that was begun, or may be; None for a table without an older index."""
    records = Records(store, "table")
    latest = records.latest()
    if latest is not None and UPGRADE_KEY in latest.content:
        with decoding(f"{uri}/{records.path(latest.version)}", "a record of an upgrade"):
            message = base64.b64decode(latest.content[UPGRADE_KEY], validate=True)
            incarnation = UUID(latest.content["incarnation"])
        return _Begun(message, incarnation, True, latest.version)
    older_index = read_older_index(store, dataset)
    if older_index is None:
        return None
    return _Begun(older_index.message, uuid4(), False, 0 if latest is None else latest.version)


def _keep(uri: str, store: ObjectStore, begun: _Begun) -> _Begun:
    """Keep the older index in the table's record: from now on only upgrades open the table."""
    version = begun.record_version + 1
    kept = {
        **table_content(store, begun.incarnation),
        UPGRADE_KEY: base64.b64encode(begun.message).decode(),
    }
    if Records(store, "table").put(version, kept) is not None:
        raise InvalidCallError(f"{uri} is being upgraded by somebody else: wait for that")
    return replace(begun, recorded=True, record_version=version)


def _check_nothing_is_lost(
    uri: str, mem_wals: Sequence[OlderMemWal], read_wal: ReadWal | None
) -> None:
    unread = [mem_wal for mem_wal in mem_wals if mem_wal.is_lost_without_its_wal]
    if unread and read_wal is None:
        raise InvalidCallError(
            f"upgrading {uri} would lose what is only in the WAL of {len(unread)} MemWALs: "
            f"{'; '.join(map(str, unread))}. Give a function that reads them, upgrade(uri, "
            "read_wal=...), or merge them with what wrote them"
        )
    for region, group in groupby(mem_wals, key=lambda mem_wal: mem_wal.region):
        generations = list(group)
        merged = [g.generation for g in generations if g.state is OlderState.MERGED]
        late = [g for g in generations if g in unread and g.generation < max(merged, default=0)]
        if late:
            raise InvalidCallError(
                f"generation {max(merged)} of region {region!r} was merged before {late[0]}, whose "
                "rows would replace newer ones: merge it with what wrote it"
            )


def _make_current(
    store: ObjectStore, dataset: Any, keys: Sequence[str], spec: RegionSpec, incarnation: UUID
) -> None:
    """Give the table an index of today in the place of the older one, as far as that is not done
    yet by an earlier attempt."""
    older = read_older_index(store, dataset)
    if older is not None:
        dataset = drop_index(dataset, older.index_uuid)
    details = details_for(dataset, spec)
    existing = read_details(store, dataset)
    if existing is None:
        dataset = mark_table(dataset, keys, incarnation)
        index_primary_key(dataset, keys)
        commit_details(dataset, details_for(dataset, spec))  # the marks give it an identity
    elif existing.details.region_specs != details.region_specs:
        raise InvalidCallError(
            f"the upgrade of {store.uri} was begun with other regions: give it the same ones"
        )


def _move(
    table: Table,
    mem_wals: Sequence[OlderMemWal],
    read_wal: ReadWal,
    manual: bool,
    progress: Report,
) -> None:
    """Write the rows of all MemWALs, ascending by generation within a region, and flush them."""
    with ExitStack() as stack:
        for done, mem_wal in enumerate(mem_wals, start=1):
            if done == 1 or (manual and mem_wal.region != mem_wals[done - 2].region):
                stack.close()
                writer = stack.enter_context(
                    table.writer(region=mem_wal.region if manual else None, durable=False)
                )
            for rows in read_wal(mem_wal):
                for deletes, run in _runs(rows):
                    (writer.delete if deletes else writer.upsert)(run)
            if done == len(mem_wals) or manual:
                writer.flush()
            progress(Progress("upgrade", mem_wal.region, done, len(mem_wals), "mem_wals"))


def _runs(rows: Any) -> Iterator[tuple[bool, Any]]:
    """Rows in pieces that are all upserts or all deletes, in their order."""
    if not hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "__arrow_c_array__"):
        yield False, rows
        return
    table = pa.table(rows)
    if TOMBSTONE not in table.column_names:
        yield False, table
        return
    flags = table[TOMBSTONE].fill_null(False).to_numpy()
    table = table.drop_columns(TOMBSTONE)
    changes = [0, *(np.flatnonzero(np.diff(flags)) + 1).tolist(), table.num_rows]
    for start, end in pairwise(changes):
        if end > start:
            yield bool(flags[start]), table.slice(start, end - start)
