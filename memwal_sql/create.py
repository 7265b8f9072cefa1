"""Making and opening tables: `create_table`, `enable`, `open_table`."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, TypedDict
from uuid import UUID, uuid4

import lance
import pyarrow as pa

from exec_nodes.lance.errors import is_not_found
from exec_nodes.lance.indexes import indexes_of
from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    StoreUnavailableError,
)
from memwal_sql.life_log import life_log
from memwal_sql.state.base_table import load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.defaults import defaults_of, stored_defaults
from memwal_sql.state.enable import (
    Uri,
    check_no_regions,
    check_unique,
    details_for,
    find_lance,
    index_primary_key,
    is_unfinished,
    key_and_spec,
    key_columns,
    mark_table,
    marked_with,
    of_replaced,
    open_lance,
    region_spec,
)
from memwal_sql.state.open_writers import stop_writers_before
from memwal_sql.state.schema import (
    check_schema,
    logical_schema,
    primary_key_of,
    with_primary_key,
)
from memwal_sql.storage.base.commits import base_commit, half_done, is_conflict
from memwal_sql.storage.base.index_identity import marks
from memwal_sql.storage.base.manifest import read_etag
from memwal_sql.storage.base.memwal_index import (
    INDEX_NAME,
    commit_details,
    drop_index,
    read_details,
)
from memwal_sql.storage.base.merge_token import unknown_partial
from memwal_sql.storage.base.scratch import put_base
from memwal_sql.storage.deadlines import check_deadline, unbounded
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.objects.probe import check_put_if_absent
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from memwal_sql.storage.paths import MEM_WAL_FOLDER
from memwal_sql.storage.records.table import (
    TableRecord,
    read_record,
    write_record,
)
from memwal_sql.storage.retries import with_retries
from memwal_sql.table import Table
from memwal_sql.table.moments import check_moment
from memwal_sql.write.router import active_spec
from planner.regions.spec import RegionSpec
from planner.regions.text import Regions, text_of

_log = life_log(__name__)


def create_table(
    uri: Uri,
    schema: pa.Schema,
    primary_key: str | Sequence[str],
    regions: Regions | None = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    exist_ok: bool = False,
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
        exist_ok: open the table if it exists, which must have these columns, this primary key and,
            where `regions` are given, these regions.

    Where a call with these columns did not come to its end, this one goes on with what it left;
    the metadata of its schema stays, and that of `schema` is not used.

    Raises InvalidCallError before anything is written when an argument does not fit or a table
    is there already, ConflictError where somebody else makes or enables one at the same time, and
    OutcomeUnknownError where the table may be there in part or whole.

    Examples:
        >>> schema = pa.schema({"id": pa.int64(), "name": pa.string()})
        >>> cities = mw.create_table("cities", schema, "id", regions=[mw.bucket("id", 4)])
        >>> cities.primary_key
        ('id',)
    """
    if not isinstance(schema, pa.Schema):
        raise InvalidCallError(f"schema must be a pyarrow.Schema, not {type(schema).__name__}")
    make = partial(_create, uri, schema, primary_key, regions, storage_options)
    if not exist_ok:
        return make()
    keys = key_columns(primary_key or ())
    find = partial(find_table, uri, schema, keys, regions, storage_options)
    return find() or made_or_found(make, find)[0]


def find_table(
    uri: Uri,
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    regions: Regions | None,
    storage_options: Mapping[str, str] | None,
) -> Table | None:
    """The existing table, or None. Raises InvalidCallError unless it is as described; without
    columns in `schema` any columns are accepted, and any regions if `regions` is None."""
    if not is_table(uri, storage_options):
        return None
    table = open_table(uri, storage_options=storage_options)
    fields = [f.with_nullable(False) if f.name in primary_key else f for f in schema]
    same = not fields or table.schema.equals(logical_schema(pa.schema(fields)))
    same = same and defaults_of(pa.schema(fields)).items() <= stored_defaults(table.schema).items()
    same = same and table.primary_key == primary_key
    if same and regions is not None:
        spec = active_spec(table.info)
        requested = region_spec(regions, table.schema, table.primary_key)
        same = text_of(requested) == ("manual" if spec is None else text_of(spec))
    if not same:
        defaults = stored_defaults(table.schema)
        specs = [text_of(spec) for spec in table.info.region_specs]
        shown = ", ".join(
            f"{field.name} {field.type}{'' if field.nullable else ' not null'}"
            + (f" default {defaults[field.name]}" if field.name in defaults else "")
            for field in table.schema
        )
        raise InvalidCallError(
            f"{table.uri} exists, and differs: it has the columns {shown}, the primary key "
            f"{list(table.primary_key)} and the regions {specs}: describe "
            "it so, or open it with open_table (in SQL, without columns)"
        )
    return table


def made_or_found(
    make: Callable[[], Table], find: Callable[[], Table | None]
) -> tuple[Table, bool]:
    """The table, and whether it was created here: another process may create it at the same
    time."""

    def once() -> tuple[Table, bool]:
        try:
            return make(), True
        except (ConflictError, InvalidCallError):
            table = find()
            if table is None:
                raise
            return table, False

    return with_retries(once, "creating a table", on=ConflictError)


def _create(
    uri: Uri,
    schema: pa.Schema,
    primary_key: str | Sequence[str],
    regions: Regions | None,
    storage_options: Mapping[str, str] | None,
) -> Table:
    keys = key_columns(primary_key or ())
    logical = logical_schema(schema)
    check_schema(logical, keys)
    _check_metadata(schema)
    spec = region_spec(regions, logical, keys)
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    try:
        recorded, rival = run_with(
            store.remote,
            partial(_begun_at, store, uri, options),
            lambda: run_with(
                store.remote,
                partial(check_put_if_absent, store),
                partial(check_no_regions, store, uri),
            ),
        )
    except InvalidCallError:
        _begun_at(store, uri, options)  # raises where the regions are of a table since made
        raise
    incarnation = uuid4()
    metadata = {**(schema.metadata or {}), **marks(incarnation)}
    marked = with_primary_key(logical, keys).with_metadata(metadata)
    new = _NewTable(uri, store, options, marked, incarnation, recorded, keys, spec)
    check_deadline(uri)
    # Without its index the table does not exist.
    with unbounded(), _making(uri):
        if rival is not None:
            record = _completed(rival, new)
        elif store.remote and not isinstance(store, TwoPhaseStore):
            record = _made_in_scratch(new)
        else:  # what needs a commit log is left to Lance's own puts
            record = _made_in_place(new)
        store.sync("")  # Lance leaves that to the system, and rows in front are durable from now on
        _log.info("created %s: primary key %s", uri, list(keys))
        context = TableContext(uri, store, record, options)
        return Table(context, load_base(context, open_lance(uri, options)))


def _check_metadata(schema: pa.Schema) -> None:
    for key, value in (schema.metadata or {}).items():
        try:
            key.decode(), value.decode()
        except UnicodeDecodeError:
            raise InvalidCallError(
                f"the schema's metadata {key!r} can't be stored, as it is not UTF-8: encode it, as "
                "by base64, or leave it out"
            ) from None


@dataclass(frozen=True, slots=True)
class _NewTable:
    """What `create_table` makes; `schema` names its primary key and its incarnation. `recorded` is
    the record of the table that was there before."""

    uri: str
    store: ObjectStore
    options: dict[str, str] | None
    schema: pa.Schema
    incarnation: UUID
    recorded: TableRecord | None
    keys: tuple[str, ...]
    spec: RegionSpec


def is_table(uri: Uri, storage_options: Mapping[str, str] | None) -> bool:
    """Whether there is a table that `create_table` would not make."""
    uri, options = canonical_uri(uri), checked_options(storage_options) or None
    table = find_lance(uri, options)
    return table is not None and not is_unfinished(open_store(uri, options), table)


@contextmanager
def _making(uri: str) -> Iterator[None]:
    """Within it a table is made or enabled, step by step: the base with its marks, the record, the
    indexes. Each is made by whoever comes first; others keep what is there, or give up, so that
    any of them may end at any time.

    Raises ConflictError where somebody else came first, and OutcomeUnknownError where a store
    failed, which does not say how far it came.
    """
    may_be = f"{uri} may be made in part, which the same call ends, or whole"
    try:
        with half_done(may_be, StoreUnavailableError):
            yield
    except ConflictError as error:
        raise ConflictError(
            f"{uri} is being made or enabled by somebody else, or was changed meanwhile: open it, "
            "or call this again"
        ) from error


def _completed(rival: Any, new: _NewTable) -> TableRecord:
    """Complete an unfinished table, and return its record. Its incarnation stays: whoever
    began it may be at it still, and who comes first at each step makes it.

    Raises InvalidCallError where it has other columns, and ConflictError where others come first.
    """
    incarnation = marked_with(rival.schema)
    same = logical_schema(rival.schema).equals(logical_schema(new.schema))
    if not same or incarnation is None or primary_key_of(rival.schema) != new.keys:
        raise InvalidCallError(
            f"{new.uri} holds an unfinished table with other columns: drop_table deletes it"
        )
    return _ended(rival, replace(new, incarnation=incarnation))


def _made_in_scratch(new: _NewTable) -> TableRecord:
    """Make a table on a remote store, where Lance would put one file after the other; its record.

    Raises ConflictError where somebody else does.
    """
    records: list[TableRecord] = []
    with TemporaryDirectory(prefix="memwal_sql-", ignore_cleanup_errors=True) as scratch:
        place = f"{scratch}/table"
        versions = _set_up(_written(new, place), new.keys, new.spec)
        put_versions = put_base(
            new.store,
            place,
            lambda: records.append(write_record(new.store, new.incarnation, new.recorded)),
        )
    if not put_versions:
        raise ConflictError(f"{new.uri} was created by somebody else just now")
    if put_versions < versions:  # somebody has written to the table since it came to be
        _finish(open_lance(new.uri, new.options), new)
    stop_writers_before((new.uri, str(new.incarnation)))
    return records[0]


def _made_in_place(new: _NewTable) -> TableRecord:
    """Make a table where it is to be; its record. Raises ConflictError where somebody else does."""
    return _ended(_written(new, lance_uri(new.uri), new.options), new)


def _ended(dataset: Any, new: _NewTable) -> TableRecord:
    """Make a table from its first version on, which has its incarnation; its record."""
    record = write_record(new.store, new.incarnation, new.recorded)
    stop_writers_before((new.uri, str(new.incarnation)))
    _finish(dataset, new)
    return record


def _begun_at(
    store: ObjectStore, uri: str, options: dict[str, str] | None
) -> tuple[TableRecord | None, Any]:
    """The record, and the unfinished table of an interrupted call, or None where there is
    nothing. Raises InvalidCallError where there is a table."""
    recorded = read_record(store)  # before the mark is, see `write_record`
    table = find_lance(uri, options)
    if table is None or is_unfinished(store, table):
        return recorded, table
    raise InvalidCallError(
        f"{uri} is a table already: open_table opens it, and enable makes a MemWAL table of a "
        "plain Lance table"
    )


def _written(
    new: _NewTable, place: str, options: dict[str, str] | None = None
) -> lance.LanceDataset:
    """The table at `place`, without rows and indexes. Raises ConflictError where there is one."""
    operation = lance.LanceOperation.Overwrite(new.schema, [])
    try:
        # `write_dataset` overwrites what others create after it has looked; without another try
        # Lance makes the first version, or looks for one before that of the others.
        return lance.LanceDataset.commit(place, operation, storage_options=options, max_retries=0)
    except OSError as error:
        reason = str(error)
        others = "already exists" in reason or is_conflict(error)
        if others or (is_not_found(error) and find_lance(new.uri, options) is not None):
            raise ConflictError(f"{new.uri} was created by somebody else just now") from error
        raise store_error(f"{new.uri} could not be created", reason, reason) from error


def _finish(dataset: Any, new: _NewTable) -> None:
    """Give a new table its indexes. Raises ConflictError where somebody else does."""
    with base_commit(new.uri, "the indexes of the new table"):
        _set_up(dataset, new.keys, new.spec)


def _set_up(dataset: Any, keys: Sequence[str], spec: RegionSpec) -> int:
    """Give a table its indexes; its version afterwards. Raises ConflictError where somebody else
    does."""
    index_primary_key(dataset, keys)
    # Lance refuses what others commit from this version on, and not what they had before.
    if any(index.name == INDEX_NAME for index in indexes_of(dataset)):
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
    A clone or a branch of a MemWAL table that plain Lance made becomes a table of its own, with the
    rows that were merged when it was made.
    Arguments and errors are otherwise those of `create_table`; ConflictError is raised where
    somebody else changes or enables the table meanwhile.

    Examples:
        >>> dataset = lance.write_dataset(pa.table({"id": [1, 2]}), "plain")
        >>> mw.enable("plain", "id").get(2).to_pylist()
        [{'id': 2}]
    """
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    check_put_if_absent(store)
    recorded = read_record(store)  # before the mark is, see `write_record`
    regions_left = store.list_folders(MEM_WAL_FOLDER)  # before the index is: it comes before them
    dataset = open_lance(uri, options)
    copied = read_details(store, dataset)
    marked = marked_with(dataset.schema)
    # A record comes before an index; this one is read again, as others may have made both just now.
    is_copy = copied is not None and (marked is not None or copied.is_copy)
    if copied is not None and not (is_copy and read_record(store) is None):
        raise InvalidCallError(f"{uri} has a MemWAL index already: open_table opens it")
    keys, spec = key_and_spec(uri, dataset, primary_key, regions)
    if regions_left:
        raise of_replaced(uri)
    if copied is not None and unknown_partial(copied.details.merged_generations, ()):
        raise InvalidCallError(f"{uri} was copied in the middle of a merge: copy it again")
    check_unique(dataset, keys)
    incarnation = uuid4() if marked is None or copied is not None else marked
    check_deadline(uri)
    commits = base_commit(uri, "the mark and the indexes of the enabled table")
    with unbounded(), _making(uri), commits:
        dataset = mark_table(dataset, keys, incarnation)
        if copied is not None and copied.details.index_uuid is not None:
            dataset = drop_index(dataset, copied.details.index_uuid)
        record = write_record(store, incarnation, recorded)
        stop_writers_before((uri, str(incarnation)))
        _set_up(dataset, keys, spec)
        store.sync("")  # Lance leaves that to the system, and rows in front are durable from now on
    _log.info("enabled %s: primary key %s", uri, list(keys))
    context = TableContext(uri, store, record, options)
    return Table(context, load_base(context, open_lance(uri, options)))


class Opening(TypedDict, total=False):
    """The arguments of `open_table` besides the place of a table."""

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
            its tag, and so may a checkpoint (protocol rule 18): the base table and the flushed
            generations that its region snapshot names, without the rows that were not flushed
            then. A version without one reads as the base table alone,
            with an `UnrecordedVersionWarning`.
        timestamp: read the state at a time, unflushed rows included; a datetime with a time zone,
            or ISO 8601 text with one. InvalidCallError for the future, and where a part of that
            state was collected.
        checkpoint: read what the checkpoint of this name holds, unflushed rows included.

    Raises InvalidCallError for a URI that is no Lance table or has no MemWAL index, and for a
    version from before it had one, TableReplacedError for a table whose regions belong to rows
    that were overwritten, and UnknownFormatError for one that a newer version of this package made.

    Examples:
        >>> mw.open_table("weather").get(2, ["city"]).to_pylist()
        [{'city': 'Rome'}]
    """
    uri = canonical_uri(uri)
    options = checked_options(storage_options) or None
    check_moment(version, timestamp, checkpoint)
    store = open_store(uri, options)
    datasets: list[Any] = []
    if timestamp is None and checkpoint is None and not isinstance(version, str):
        opened = partial(open_lance, uri, options, version)
        record = run_with(
            store.remote, partial(read_record, store), lambda: datasets.append(opened())
        )
    else:
        record = read_record(store)
    first_version = None if record else read_etag(store, 1)
    context = TableContext(uri, store, record, options, first_version=first_version)
    if version is None and timestamp is None and checkpoint is None:
        table = Table(context, load_base(context, datasets[0]))
    else:
        dataset = datasets[0] if datasets else None
        table = Table.pinned(context, version, timestamp, checkpoint, dataset)
    _log.info("opened %s at version %d", uri, table.version)
    return table


def _open_again(arguments: dict[str, Any]) -> Table:
    return open_table(**arguments)


def _reduced(table: Table) -> tuple[Callable[[dict[str, Any]], Table], tuple[dict[str, Any]]]:
    """A handle pickles as how it was opened, with its storage options."""
    return _open_again, (table.opened_with,)


copyreg.pickle(Table, _reduced)
