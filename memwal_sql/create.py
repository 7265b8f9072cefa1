"""Making and opening tables: `create_table`, `enable`, `open_table`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, TypedDict
from uuid import UUID, uuid4

import lance
import pyarrow as pa

from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    StoreUnavailableError,
)
from memwal_sql.state.context import TableContext
from memwal_sql.state.enable import (
    Uri,
    check_no_regions,
    check_unique,
    details_for,
    find_lance,
    index_primary_key,
    is_unfinished,
    key_columns,
    mark_table,
    open_lance,
    region_spec,
    wanted_of,
)
from memwal_sql.state.open_writers import stop_writers_before
from memwal_sql.state.schema import (
    check_schema,
    logical_schema,
    primary_key_of,
    with_primary_key,
)
from memwal_sql.storage.base.commits import base_commit, half_done
from memwal_sql.storage.base.manifest import read_etag
from memwal_sql.storage.base.memwal_index import INDEX_NAME, commit_details, read_details
from memwal_sql.storage.base.scratch import put_base
from memwal_sql.storage.deadlines import check_deadline, unbounded
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.objects.probe import check_put_if_absent
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.objects.side_by_side import beside
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from memwal_sql.storage.records.table import (
    INCARNATION_KEY,
    TableRecord,
    read_record,
    write_record,
)
from memwal_sql.table import Table
from memwal_sql.table.past import check_moment
from planner.regions.spec import RegionSpec
from planner.regions.text import Regions

_log = logging.getLogger(__name__)


def create_table(
    uri: Uri,
    schema: pa.Schema,
    primary_key: str | Sequence[str],
    regions: Regions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Create an empty Lance table with a MemWAL index, and open it.

    Args:
        uri: a folder, `memory://name`, or a URL such as `s3://bucket/table`.
        schema: the columns; the primary key's columns become not nullable.
        primary_key: one column or several; integers, booleans, strings, binary, dates, times,
            timestamps or decimals.
        regions: the fields of the region spec, such as `[mw.bucket("id", 16)]`, or their text,
            `"bucket(id, 16)"`; they may read primary key columns only (protocol rule 10). `None`:
            one region. `mw.manual()` or `"manual"`: the caller names the region of every writer.
        storage_options: for Lance and for MemWAL alike.

    Where a call with these columns did not come to its end, this one goes on with what it left;
    the metadata of its schema stays, and that of `schema` is not used.

    Raises InvalidCallError before anything is written when an argument does not fit or a table
    is there already, and OutcomeUnknownError where the table may be there in part or whole.
    """
    if not isinstance(schema, pa.Schema):
        raise InvalidCallError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    keys = key_columns(primary_key or ())
    logical = logical_schema(schema)
    check_schema(logical, keys)
    spec = region_spec(regions, logical, keys)
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    left = beside(
        store.remote,
        partial(_unfinished_at, store, uri, options),
        lambda: beside(
            store.remote,
            partial(check_put_if_absent, store),
            partial(check_no_regions, store, uri),
        ),
    )
    incarnation = uuid4()
    metadata = {**(schema.metadata or {}), INCARNATION_KEY: str(incarnation).encode()}
    marked = with_primary_key(logical, keys).with_metadata(metadata)
    new = _NewTable(uri, store, options, marked, incarnation, keys, spec)
    check_deadline(uri)
    with unbounded(), _unknown_outcome(uri):  # a table without its index is none
        if left is not None:
            record = _completed(left, new)
        elif store.remote and not isinstance(store, TwoPhaseStore):
            record = _made_in_scratch(new)
        else:  # what needs a commit log is left to Lance's own puts
            record = _made_in_place(new)
        store.sync("")  # Lance leaves that to the system, and rows in front are durable from now on
        _log.info("created %s: primary key %s", uri, list(keys))
        return Table(TableContext(uri, store, record, options), open_lance(uri, options))


@dataclass(frozen=True, slots=True)
class _NewTable:
    """What `create_table` makes; `schema` names its primary key and its incarnation."""

    uri: str
    store: ObjectStore
    options: dict[str, str] | None
    schema: pa.Schema
    incarnation: UUID
    keys: tuple[str, ...]
    spec: RegionSpec


def is_table(uri: Uri, storage_options: Mapping[str, str] | None) -> bool:
    """Whether there is a table that `create_table` would not make."""
    uri, options = canonical_uri(uri), checked_options(storage_options) or None
    found = find_lance(uri, options)
    return found is not None and not is_unfinished(open_store(uri, options), found)


def _unknown_outcome(uri: str) -> AbstractContextManager[None]:
    """Within it a table is made, and a store that fails does not say how far it has come."""
    may_be = f"{uri} may be made in part, which the same call ends, or whole"
    return half_done(may_be, StoreUnavailableError)


def _completed(left: Any, new: _NewTable) -> TableRecord:
    """Make what is left of a table whole, and give its record. Its incarnation stays: whoever
    began it may be at it still, and who comes first at each step makes it.

    Raises InvalidCallError where that one has other columns, and where it has come first.
    """
    incarnation = None
    if logical_schema(left.schema).equals(logical_schema(new.schema)):
        with suppress(ValueError):
            incarnation = UUID(left.schema.metadata[INCARNATION_KEY].decode())
    if incarnation is None or primary_key_of(left.schema) != new.keys:
        raise InvalidCallError(
            f"{new.uri} is what is left of a table with other columns, which was not made to its "
            "end: drop_table deletes it"
        )
    record = read_record(new.store)
    if record is None or record.incarnation != incarnation:
        record = write_record(new.store, incarnation)
    stop_writers_before((new.uri, str(incarnation)))
    _finish(left, new)
    return record


def _made_in_scratch(new: _NewTable) -> TableRecord:
    """Make a table on a remote store, where Lance would put one file after the other; its record.

    Raises InvalidCallError where somebody else does.
    """
    records: list[TableRecord] = []
    with TemporaryDirectory(prefix="memwal_sql-", ignore_cleanup_errors=True) as scratch:
        place = f"{scratch}/table"
        versions = _set_up(_written(new, place), new.keys, new.spec)
        there = put_base(
            new.store, place, lambda: records.append(write_record(new.store, new.incarnation))
        )
    if not there:
        raise _made_by_others(new.uri)
    if there < versions:  # somebody has written to the table since it came to be
        _finish(open_lance(new.uri, new.options), new)
    stop_writers_before((new.uri, str(new.incarnation)))
    return records[0]


def _made_in_place(new: _NewTable) -> TableRecord:
    """Make a table where it is to be; its record. Raises InvalidCallError where somebody else
    does."""
    dataset = _written(new, lance_uri(new.uri), new.options)
    record = write_record(new.store, new.incarnation)
    stop_writers_before((new.uri, str(new.incarnation)))
    _finish(dataset, new)
    return record


def _unfinished_at(store: ObjectStore, uri: str, options: dict[str, str] | None) -> Any:
    """What is left of a table that was not made to its end, None where there is nothing. Raises
    InvalidCallError where there is a table."""
    found = find_lance(uri, options)
    if found is None or is_unfinished(store, found):
        return found
    raise InvalidCallError(
        f"{uri} is a table already: open_table or enable it; memwal load takes it without "
        "--primary-key"
    )


def _written(
    new: _NewTable, place: str, options: dict[str, str] | None = None
) -> lance.LanceDataset:
    """The table at `place`, without rows and indexes."""
    schema = new.schema
    try:
        return lance.write_dataset(
            schema.empty_table(), place, schema=schema, mode="create", storage_options=options
        )
    except OSError as error:
        if "already exists" in str(error):
            raise _made_by_others(new.uri) from None
        raise store_error(f"{new.uri} could not be created", str(error), str(error)) from error


def _made_by_others(uri: str) -> InvalidCallError:
    return InvalidCallError(f"{uri} was created by somebody else just now: open it")


def _finish(dataset: Any, new: _NewTable) -> None:
    """Give a new table its indexes. Raises InvalidCallError where somebody else does."""
    try:
        with base_commit(new.uri, "the indexes of the new table"):
            _set_up(dataset, new.keys, new.spec)
    except ConflictError as error:
        raise _made_by_others(new.uri) from error


def _set_up(dataset: Any, keys: Sequence[str], spec: RegionSpec) -> int:
    """Give a table its indexes; its version afterwards. Raises ConflictError where somebody else
    does."""
    index_primary_key(dataset, keys)
    # Lance refuses what others commit from this version on, and not what they had before.
    if any(one.name == INDEX_NAME for one in dataset.describe_indices()):
        raise ConflictError(f"{dataset.uri} was given its MemWAL index by somebody else just now")
    return int(commit_details(dataset, details_for(dataset, spec)).version)


def enable(
    uri: Uri,
    primary_key: str | Sequence[str] | None = None,
    regions: Regions | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Give an existing Lance table a MemWAL index, and open it.

    `primary_key` may be left out when the table has one. A table whose rows hold a null key or
    the same key twice is refused, naming the key: there would be no telling which row is live.
    Arguments and errors are otherwise those of `create_table`; ConflictError is raised where
    somebody else changes or enables the table meanwhile.
    """
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    check_put_if_absent(store)
    recorded = read_record(store)  # before the mark: who is ahead with both is seen by one of them
    dataset = open_lance(uri, options)
    if read_details(store, dataset) is not None:
        raise InvalidCallError(f"{uri} has a MemWAL index already: open_table opens it")
    keys, spec = wanted_of(uri, dataset, primary_key, regions)
    check_no_regions(store, uri)
    check_unique(dataset, keys)
    incarnation = _begun(dataset.schema, recorded) or uuid4()
    number = 1 if recorded is None else recorded.number + 1
    check_deadline(uri)
    commits = base_commit(uri, "the mark and the indexes of the enabled table")
    with unbounded(), _unknown_outcome(uri), commits:
        mark_table(dataset, keys, incarnation)
        record = write_record(store, incarnation, number)
        stop_writers_before((uri, str(incarnation)))
        _set_up(dataset, keys, spec)
        store.sync("")  # Lance leaves that to the system, and rows in front are durable from now on
    _log.info("enabled %s: primary key %s", uri, list(keys))
    return Table(TableContext(uri, store, record, options), open_lance(uri, options))


def _begun(schema: pa.Schema, recorded: TableRecord | None) -> UUID | None:
    """The incarnation that somebody has marked a table with, to record it next; None if nobody
    has. It stays, whether they are at it still or not."""
    with suppress(KeyError, ValueError):
        marked = UUID((schema.metadata or {})[INCARNATION_KEY].decode())
        return None if recorded is not None and recorded.incarnation == marked else marked
    return None


class Opening(TypedDict, total=False):
    """What `open_table` takes beside the place of a table."""

    version: int | str | None
    storage_options: Mapping[str, str] | None
    timestamp: datetime | str | None
    checkpoint: str | None


def open_table(
    uri: Uri,
    version: int | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    timestamp: datetime | str | None = None,
    checkpoint: str | None = None,
) -> Table:
    """Open a MemWAL table, as it is now or as it was.

    Args:
        version: read the table as it was recorded at this base version, which may be given by
            its tag, and so may a checkpoint (protocol rule 18): the
            base table and the flushed generations that its region snapshot names, without the
            rows that were not flushed then. A version without one reads as the base table alone,
            with an `UnrecordedVersionWarning`.
        timestamp: read the newest version that had been committed by then; a datetime with a time
            zone, or ISO 8601 text with one.
        checkpoint: read what the checkpoint of this name holds, unflushed rows included.

    Raises InvalidCallError for a URI that is no Lance table or has no MemWAL index, and for a
    version from before it had one, TableReplacedError for a table whose regions belong to rows
    that were overwritten, and UnknownFormatError for one that a newer version of this package made.
    """
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    check_moment(version, timestamp, checkpoint)
    store = open_store(uri, options)
    datasets: list[Any] = []
    if timestamp is None and checkpoint is None and not isinstance(version, str):
        opened = partial(open_lance, uri, options, version)
        record = beside(
            store.remote, partial(read_record, store), lambda: datasets.append(opened())
        )
    else:
        record = read_record(store)
    first_version = None if record else read_etag(store, 1)
    context = TableContext(uri, store, record, options, first_version=first_version)
    if version is None and timestamp is None and checkpoint is None:
        table = Table(context, datasets[0])
    else:
        dataset = datasets[0] if datasets else None
        table = Table.pinned(context, version, timestamp, checkpoint, dataset)
    _log.info("opened %s at version %d", uri, table.version)
    return table
