"""Region snapshots: the states of all regions as one small Lance file.

Specification 1, "Region Snapshot Arrow Schema": one row per region, one column per field, and
`region_field_{field_id}` for the region values. Up to `INLINE_REGIONS` regions the file's bytes are
inside the index details, beyond that they are a file of the index's folder.

A damaged byte in it can end the process in Lance's reader. So files of this package have a checksum
right before their footer, where readers of Lance files never look: the footer says where all else
begins. Files from before, and those of native code, have none.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from exec_nodes.lance.errors import bytes_of_lance
from exec_nodes.lance.reading import rows_of
from memwal_sql.errors import StoreUnavailableError
from memwal_sql.storage.decoding import decoding, whole_number
from memwal_sql.storage.region.manifest import RegionManifest, flushed_generation
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue, arrow_values, region_values, type_of

INLINE_REGIONS = 100

_MAGIC = b"LANC"
_FOOTER_BYTES = 40  # of a Lance file
_SUM = b"MWcr"  # begins the checksum
_SUM_BYTES = 4
_FIELD_PREFIX = "region_field_"
# A column of this package: it tells a region whose values are all NULL from one with unknown
# values.
_HAS_VALUES = "memwal_sql_has_values"
_GENERATION = pa.struct(
    [
        pa.field("generation", pa.uint64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
    ]
)
_SCHEMA = pa.schema(
    [
        pa.field("region_id", pa.binary(16), nullable=False),
        pa.field("version", pa.uint64(), nullable=False),
        pa.field("region_spec_id", pa.uint32(), nullable=False),
        pa.field("writer_epoch", pa.uint64(), nullable=False),
        pa.field("replay_after_wal_entry_position", pa.uint64(), nullable=False),
        pa.field("wal_entry_position_last_seen", pa.uint64(), nullable=False),
        pa.field("current_generation", pa.uint64(), nullable=False),
        pa.field("flushed_generations", pa.list_(_GENERATION), nullable=False),
    ]
)
_NUMBERS = _SCHEMA.names[1:-1]


def external_path(index_uuid: UUID | str) -> str:
    """Where the snapshot of an index with more than `INLINE_REGIONS` regions is."""
    return f"_indices/{index_uuid}/index.lance"


def encode_regions(regions: Sequence[RegionManifest], specs: Sequence[RegionSpec]) -> bytes:
    """The bytes of a Lance file with one row a region, in the order given.

    Regions without values have NULL in all value columns. Two specs may use the same field id
    only with the same type; raises `InvalidCallError` for a value of another type.
    """
    columns: dict[str, pa.Array] = {
        "region_id": pa.array([region.region_id.bytes for region in regions], pa.binary(16)),
        **{name: [getattr(region, name) for region in regions] for name in _NUMBERS},
        "flushed_generations": [
            [{"generation": g.generation, "path": g.path} for g in region.flushed_generations]
            for region in regions
        ],
    }
    fields = list(_SCHEMA)
    for field_id, data_type in _types(specs).items():
        values: list[object] = [(region.region_values or {}).get(field_id) for region in regions]
        fields.append(pa.field(_FIELD_PREFIX + field_id, data_type))
        columns[_FIELD_PREFIX + field_id] = arrow_values(values, data_type)
    fields.append(pa.field(_HAS_VALUES, pa.bool_(), nullable=False))
    columns[_HAS_VALUES] = pa.array(
        [region.region_values is not None for region in regions], pa.bool_()
    )
    table = pa.table(columns, schema=pa.schema(fields))
    with _temporary_file() as path:
        with LanceFileWriter(path, table.schema) as writer:
            writer.write_batch(table)
        with open(path, "rb") as file:
            return _sealed(file.read())


def decode_regions(
    data: bytes,
    specs: Sequence[RegionSpec],
    path: str = "the MemWAL index's region snapshot",
    remedy: str = "table.snapshot_regions() makes it again; let Lance clean up an older version "
    "that has it",
) -> list[RegionManifest]:
    """The regions of a file, in its order; `path` names it in errors, and `remedy` what to do.

    They lack what a snapshot does not hold: status and sizes of generations. A region has values
    when its spec is among `specs`. Raises `CorruptFileError`.
    """
    with decoding(path, "a region snapshot", remedy):
        # Lance's reader panics on a file that is too short.
        if len(data) < _FOOTER_BYTES or not data.endswith(_MAGIC):
            raise ValueError("it does not end with LANC")
        _check_sum(data)
        table = _read(data)
        columns = {name: table[name].to_pylist() for name in _SCHEMA.names}
        columns[_HAS_VALUES] = _has_values(table)
        values = {
            field_id: region_values(table[_FIELD_PREFIX + field_id].cast(data_type))
            for field_id, data_type in _types(specs).items()
            if _FIELD_PREFIX + field_id in table.column_names
        }
        fields = {spec.spec_id: spec.field_ids for spec in specs if not spec.is_manual}
        return [
            RegionManifest(
                region_id=UUID(bytes=row["region_id"]),
                **_numbers(row),
                flushed_generations=tuple(
                    flushed_generation(generation["generation"], generation["path"])
                    for generation in row["flushed_generations"]
                ),
                region_values=(
                    _values_of(fields.get(row["region_spec_id"]), values, i)
                    if row[_HAS_VALUES]
                    else None
                ),
            )
            for i, row in enumerate(
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            )
        ]


def _sealed(data: bytes) -> bytes:
    """A Lance file with the checksum of all other bytes before its footer."""
    checksum = zlib.crc32(data).to_bytes(_SUM_BYTES, "little")
    return data[:-_FOOTER_BYTES] + _SUM + checksum + data[-_FOOTER_BYTES:]


def _check_sum(data: bytes) -> None:
    """Raise ValueError where there is a checksum of other bytes."""
    body, footer = data[:-_FOOTER_BYTES], data[-_FOOTER_BYTES:]
    checksum, body = body[-_SUM_BYTES:], body[:-_SUM_BYTES]
    if not body.endswith(_SUM):
        return
    if zlib.crc32(body.removesuffix(_SUM) + footer) != int.from_bytes(checksum, "little"):
        raise ValueError("it does not have the checksum that it was written with")


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: whole_number(row[name]) for name in _NUMBERS}


def _values_of(
    field_ids: Sequence[str] | None, values: dict[str, list[RegionValue]], row: int
) -> dict[str, RegionValue] | None:
    if field_ids is None or not all(field_id in values for field_id in field_ids):
        return None
    return {field_id: values[field_id][row] for field_id in field_ids}


def _has_values(table: pa.Table) -> list[bool]:
    """A region of another writer's snapshot counts as having values when one is not NULL: to
    know none is always right, only slower."""
    if _HAS_VALUES in table.column_names:
        stored: list[bool] = table[_HAS_VALUES].to_pylist()
        return stored
    has_value = np.zeros(table.num_rows, np.bool_)
    for name in table.column_names:
        if name.startswith(_FIELD_PREFIX):
            has_value |= np.asarray(table[name].is_valid())
    result: list[bool] = has_value.tolist()
    return result


def _types(specs: Sequence[RegionSpec]) -> dict[str, pa.DataType]:
    return {field.field_id: type_of(field.result_type) for spec in specs for field in spec.fields}


def _read(data: bytes) -> pa.Table:
    with _temporary_file() as path:
        with open(path, "wb") as file:
            file.write(data)
        with bytes_of_lance():
            return rows_of(LanceFileReader(path).read_all())


@contextmanager
def _temporary_file() -> Iterator[str]:
    """The path of a file in a folder of its own. Raises StoreUnavailableError."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield os.path.join(folder, "index.lance")
    except OSError as error:
        # One without a number is the TimeoutError of a signal handler, or Lance's.
        if error.errno is None and "LanceError" not in str(error):
            raise
        raise StoreUnavailableError(
            "a small file could not be written into the folder for temporary files: set TMPDIR to "
            f"one with space: {error}"
        ) from error
