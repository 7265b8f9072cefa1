"""Writing a flushed generation: a Lance table of its own, as native readers expect it.

Specification 1, "Flushed MemTable". The folder has a random name, and nothing points to it until
the region's manifest does, so a crash leaves an orphan and nothing else.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory, gettempdir
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.arrow.text_columns import column_of
from exec_nodes.base.secrets import redacted
from exec_nodes.lance.scan import row_bytes
from exec_nodes.resident.admission import Admission
from memwal_sql.errors import InvalidCallError, StoreUnavailableError
from memwal_sql.life_log import life_log
from memwal_sql.storage import paths
from memwal_sql.storage.base.field_ids import generation_schema
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.base.scratch import put_table
from memwal_sql.storage.generation.pk_index import write_pk_index
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.storage.wal.entry import TOMBSTONE

# A generation is one fragment of one file: row addresses are then row positions.
_MOST_ROWS = 2**31 - 1
_MOST_BYTES = 2**62

_log = life_log(__name__)


@dataclass(frozen=True, slots=True)
class BaseFormat:
    """The parts of the base table that generations take over. A writer is open for days and keeps
    this instead of a Lance dataset, which would keep all that its session holds."""

    lance_schema: Any
    data_storage_version: str

    @classmethod
    def of(cls, dataset: Any) -> BaseFormat:
        """The template of a version of the base table."""
        return cls(dataset.lance_schema, dataset.data_storage_version)


def random_hex() -> str:
    """8 random hex digits."""
    return os.urandom(4).hex()


def write_generation(
    store: ObjectStore,
    table_uri: str,
    region_id: UUID,
    generation: int,
    table: pa.Table,
    *,
    primary_key: Sequence[str],
    base: Any,
    bloom_filter: bytes,
    indexes: Sequence[IndexRecipe] = (),
    storage_options: Mapping[str, str] | None = None,
    new_hex: Callable[[], str] = random_hex,
) -> FlushedGeneration:
    """Write the rows of `table` as a generation into a new folder, durably.

    `table` has the base table's columns and `_tombstone` last, at least one row, and every key
    once. The generation takes field ids and file format of `base`, which may be a Lance dataset
    as well; `bloom_filter` are the bytes over its keys; `indexes` are built over its rows. For a
    remote store the files are made in a temporary folder first. Raises `StoreUnavailableError` when
    the store or the disk of that folder refuses; what was written by then is never read.
    """
    if table.column_names[-1:] != [TOMBSTONE] or not table.num_rows:
        raise InvalidCallError(f"a generation needs rows and {TOMBSTONE!r} as its last column")
    name = paths.generation_name(new_hex(), generation)
    folder = paths.generation_folder(region_id, name)
    uri = paths.generation_uri(lance_uri(table_uri), region_id, name)
    options = dict(storage_options) if storage_options else None
    write = partial(_write_files, table, primary_key, base, indexes, uri)
    try:
        if store.remote:
            with TemporaryDirectory(prefix="memwal_sql-", ignore_cleanup_errors=True) as scratch:
                write(f"{scratch}/{name}", None)
                put_table(store, folder, f"{scratch}/{name}", {paths.BLOOM_FILTER: bloom_filter})
        else:
            write(uri, options)
            store.put(f"{folder}/{paths.BLOOM_FILTER}", bloom_filter)
    except OSError as error:
        where = f" in {gettempdir()}, where it is made" if store.remote else ""
        raise StoreUnavailableError(
            f"{uri} could not be written{where}; try again: {error}"
        ) from error
    store.sync(folder)
    checksum = zlib.crc32(bloom_filter)
    return FlushedGeneration(generation, name, table.nbytes, table.num_rows, checksum)


def _write_files(
    table: pa.Table,
    primary_key: Sequence[str],
    base: Any,
    indexes: Sequence[IndexRecipe],
    name: str,
    uri: str,
    options: dict[str, str] | None,
) -> None:
    """Lance's files of the generation that is called `name` in messages, into the folder `uri`."""
    build_indexes(_write_table(uri, table, base, primary_key, options), indexes, name)
    write_pk_index(
        f"{uri}/_pk_index",
        table,
        primary_key,
        version=base.data_storage_version,
        storage_options=options,
    )


def _write_table(
    uri: str,
    table: pa.Table,
    base: Any,
    primary_key: Sequence[str],
    options: dict[str, str] | None,
) -> Any:
    schema = table.schema.remove_metadata()
    batches = [aligned(batch) for batch in table.to_batches()]
    rows = pa.Table.from_batches(batches, table.schema).replace_schema_metadata(None)
    settings: dict[str, Any] = {
        "max_rows_per_file": _MOST_ROWS,
        "max_bytes_per_file": _MOST_BYTES,
        "data_storage_version": base.data_storage_version,
        "storage_options": options,
    }
    numbered = generation_schema(base.lance_schema, schema)
    if numbered == LanceSchema.from_pyarrow(schema):
        dataset = lance.write_dataset(rows, uri, mode="create", **settings)
    else:
        # Only an empty table can be given ids: one that has rows keeps its own.
        dataset = lance.write_dataset(rows.slice(0, 0), uri, mode="create", **settings)
        dataset = lance.LanceDataset.commit(
            dataset, lance.LanceOperation.Project(numbered), read_version=dataset.version
        )
        dataset = lance.write_dataset(rows, dataset, mode="append", **settings)
    # Readers take a smaller one into memory. Native code never asks for it: it has `_pk_index`.
    is_small = table.num_rows * row_bytes(schema) <= Admission.small
    if len(primary_key) == 1 and not is_small:
        dataset.create_scalar_index(primary_key[0], "BTREE")
    return dataset


def build_indexes(dataset: Any, recipes: Iterable[IndexRecipe], name: str) -> None:
    """Build every index whose column `dataset` has; the log calls it `name`.

    A column that the rows do not have was added to the base after the writer was opened. What Lance
    refuses to index, as a column whose type was changed since, is logged and left out too: the rows
    come first, and whoever searches a generation without an index reads them. Rows without a vector
    or a text, however many, are no error; a store that fails is.
    """
    names = set(dataset.schema.names)
    for recipe in recipes:
        info = recipe.info
        if column_of(info.column) not in names:
            continue
        build = dataset.create_scalar_index if info.is_text else dataset.create_index
        try:
            build(info.column, info.kind, name=info.name, **recipe.arguments)
        except (ValueError, TypeError, RuntimeError) as error:
            why = redacted(str(error))
            _log.warning("%s goes without the index %s: %s", name, info.name, why)
