"""Makes a Lance table a MemWAL table, in steps that may be repeated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa

from exec_nodes.keys.codes import first_duplicate
from exec_nodes.lance.errors import (
    BASE_NAME,
    damaged,
    is_damage,
    is_not_found,
    lance_panics,
)
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.reading import rows_of
from memwal_sql.errors import ConflictError, InvalidCallError, MemWalError
from memwal_sql.state.schema import (
    check_schema,
    logical_schema,
    primary_key_of,
    with_primary_key,
)
from memwal_sql.storage.base.commits import base_commit
from memwal_sql.storage.base.field_ids import field_ids, with_marks
from memwal_sql.storage.base.index_identity import identity, marks
from memwal_sql.storage.base.indexes import searchable_indexes
from memwal_sql.storage.base.memwal_index import IndexDetails, read_details
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import MEM_WAL_FOLDER
from memwal_sql.storage.records.table import INCARNATION_KEY
from planner.regions.check import validate
from planner.regions.factories import unsharded
from planner.regions.spec import RegionSpec
from planner.regions.storage import to_storage
from planner.regions.text import Regions, spec_of

Uri = str | os.PathLike[str]

_FIRST_SPEC_ID = 1
_LEGACY = "0.1"
_IN_THE_WAY = "Not a directory (os error 20)"


def key_columns(primary_key: str | Sequence[str]) -> tuple[str, ...]:
    """The key's columns as a tuple. Raises InvalidCallError unless it names columns."""
    if isinstance(primary_key, str):
        return (primary_key,)
    names = tuple(primary_key) if isinstance(primary_key, Iterable) else (primary_key,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidCallError(
            f"primary_key={primary_key!r} must be the name of a column or a list of names"
        )
    return names


def region_spec(
    regions: Regions | None,
    schema: pa.Schema,
    keys: Sequence[str],
) -> RegionSpec:
    """The spec that a caller wants. Raises InvalidCallError where it does not fit the table."""
    region_spec = spec_of(unsharded() if regions is None else regions, _FIRST_SPEC_ID)
    return validate(region_spec, schema, keys)


def key_and_spec(
    uri: str, dataset: Any, primary_key: str | Sequence[str] | None, regions: Regions | None
) -> tuple[tuple[str, ...], RegionSpec]:
    """The key and the spec that a table at `uri` is to have; without `primary_key` its own key.

    Raises InvalidCallError where they do not fit the table, or another key than it has.
    """
    if dataset.data_storage_version == _LEGACY:
        raise InvalidCallError(
            f"{uri} has Lance's legacy format, in which generations can't be written: write its "
            f"rows into a new table, as by lance.write_dataset(lance.dataset({uri!r}), new_uri, "
            'data_storage_version="stable"), and enable that'
        )
    present = primary_key_of(dataset.schema)
    keys = present if primary_key is None else key_columns(primary_key)
    schema = logical_schema(dataset.schema)
    check_schema(schema, keys)
    if present and present != keys:
        raise InvalidCallError(
            f"{uri} has the primary key {list(present)}, not {list(keys)}; it can't be changed"
        )
    return keys, region_spec(regions, schema, keys)


def open_lance(uri: str, options: dict[str, str] | None, version: int | None = None) -> Any:
    """The Lance table at `uri`. Raises InvalidCallError if it does not exist."""
    table = find_lance(uri, options, version)
    if table is None:
        raise InvalidCallError(
            f"{uri} is not a Lance table: create_table makes one, as memwal load --primary-key does"
        )
    return table


def find_lance(uri: str, options: dict[str, str] | None, version: int | None = None) -> Any:
    """The Lance table at `uri`; None when there is none."""
    check_deadline(uri)
    try:
        with lance_panics(BASE_NAME, uri):
            return lance.dataset(lance_uri(uri), version=version, storage_options=options)
    except MemWalError:
        raise
    except (OSError, ValueError) as error:
        if not is_not_found(error):
            reason = str(error)
            if _IN_THE_WAY in reason:
                what = uri if os.path.isfile(uri) else f"part of the path {uri}"
                raise InvalidCallError(f"{what} is a file, and a table is a folder") from None
            if is_damage(error):
                raise damaged(BASE_NAME, uri, reason) from None
            raise store_error(f"{uri} could not be opened", reason, reason) from None
    if version is not None and (latest := find_lance(uri, options)) is not None:
        raise InvalidCallError(
            f"{uri} has no version {version}; its latest is {latest.version}, and old ones are "
            "cleaned up after some time"
        )
    return None


def is_begun(store: ObjectStore, dataset: Any) -> bool:
    """Whether a table is marked and has neither a MemWAL index nor regions: a call that creates or
    enables it is under way, or was interrupted."""
    return (
        INCARNATION_KEY in (dataset.schema.metadata or {})
        and read_details(store, dataset) is None
        and not store.list_folders(MEM_WAL_FOLDER)
    )


def is_unfinished(store: ObjectStore, dataset: Any) -> bool:
    """Whether it is one that has no rows, which `create_table` ends, too."""
    return is_begun(store, dataset) and dataset.count_rows() == 0


def check_no_regions(store: ObjectStore, uri: str) -> None:
    """Raise InvalidCallError where regions of an earlier table are left."""
    if store.list_folders(MEM_WAL_FOLDER):
        raise of_replaced(uri)


def of_replaced(uri: str) -> InvalidCallError:
    """The error for regions of an earlier table."""
    return InvalidCallError(
        f"{uri} still holds regions of a table that was replaced, under {MEM_WAL_FOLDER}/: "
        "move that folder and _memwal_sql/ away if their rows are not needed any more"
    )


def check_unique(dataset: Any, keys: Sequence[str]) -> None:
    """Raise InvalidCallError naming a key that is null or there twice."""
    rows = rows_of(dataset.scanner(columns=list(keys)))
    for name in keys:
        if rows[name].null_count:
            raise InvalidCallError(
                f"{rows[name].null_count} rows have a null in the primary key column {name!r}: "
                "delete or fill them first"
            )
    duplicate = first_duplicate(rows)
    if duplicate is not None:
        raise InvalidCallError(
            f"the key {duplicate} occurs more than once in {dataset.uri}: "
            "keep one row for every key first"
        )


def marked_with(schema: pa.Schema) -> UUID | None:
    """The incarnation in the mark of a table's schema; None without a mark."""
    with suppress(KeyError, ValueError):
        return UUID((schema.metadata or {})[INCARNATION_KEY].decode())
    return None


def mark_table(dataset: Any, keys: Sequence[str], incarnation: UUID) -> Any:
    """Mark the primary key and the incarnation in the table's schema, unless they are; the dataset
    with them.

    It is one commit, a projection: Lance refuses it where others have changed the schema or added
    rows since, so that of two who mark a version one does; by several commits they would mix.
    Raises what `base_commit` raises, and ConflictError where `dataset` is not the newest version.
    """
    schema = dataset.schema
    if primary_key_of(schema) != tuple(keys):
        schema = with_primary_key(schema, keys)
    elif marked_with(schema) == incarnation:
        return dataset
    metadata = {**(schema.metadata or {}), **marks(incarnation)}
    marked = pa.schema([schema.field(name) for name in keys], metadata)
    operation = lance.LanceOperation.Project(with_marks(dataset.lance_schema, marked))
    with base_commit(dataset.uri, "the primary key and the incarnation"):
        if dataset.latest_version != dataset.version:  # a projection would undo others' metadata
            raise ConflictError(f"{dataset.uri} was changed by somebody else just now")
        return lance.LanceDataset.commit(
            dataset, operation, read_version=dataset.version, max_retries=0
        )


def index_primary_key(dataset: Any, keys: Sequence[str]) -> None:
    """Give every column of the primary key an index, unless it has one."""
    indexed = {tuple(index.field_names) for index in indexes_of(dataset)}
    for name in keys:
        if (name,) not in indexed:
            dataset.create_scalar_index(name, "BTREE")


def details_for(dataset: Any, spec: RegionSpec) -> IndexDetails:
    """Index details of a table without regions, with `spec` as their first spec; the indexes that
    it has for searches are maintained."""
    specs = () if spec.is_manual else (to_storage(spec, field_ids(dataset)),)
    return IndexDetails(
        region_specs=specs,
        maintained_indexes=searchable_indexes(dataset),
        writer_config_defaults=identity(dataset.schema.metadata, specs),
    )
