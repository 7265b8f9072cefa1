"""Reading one version of a Lance table into batches of the table's logical columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from exec_nodes.base.columns import ROW_ADDRESS_FIELD, Filter, RowAddresses
from exec_nodes.base.counting import lance_reads
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.lance.fragments import counted_addresses, every_row, whole_fragments
from exec_nodes.lance.reading import batches_of, rows_of

# Measured on 2 cores with 1,000,000 rows of 16 bytes: a whole scan takes 6.5 ms with 131,072 rows
# a batch, 7.5 with 65,536 and more with Lance's default of 8,192 (the price of a batch), or with
# larger batches (which leave the processor's caches).
MAX_BATCH_ROWS = 131_072
MIN_BATCH_ROWS = 1_024
BATCH_BYTES = 4 * 1024 * 1024
# Guess for a value of varying length, for sizing batches only.
_VARYING_BYTES = 32
_SAMPLED_FRAGMENTS = 8


class Batches(Thresholds):
    """`most_bytes` of files that a batch has on average: an array of texts holds 2 GiB, and Lance
    stores texts in an eighth of that or more."""

    most_bytes = 128 << 20


def scan_dataset(
    dataset: Any,
    schema: pa.Schema,
    filters: Sequence[Filter],
    limit: int | None,
    fragments: Sequence[Any] | None,
    table_schema: pa.Schema,
    *,
    offset: int = 0,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of `schema`, then `_rowaddr`, of the rows that match every filter.

    Filters that Lance can take, over columns that the dataset has, run inside Lance; others are
    evaluated on batches of the columns of `table_schema`. Columns that the dataset lacks are null.
    `fragments` restricts the scan; None means all. `offset` rows are passed over, without filters.
    """
    stored = set(dataset.schema.names)
    inside = [f for f in filters if f.lance is not None and stored.issuperset(f.columns)]
    outside = [f for f in filters if f not in inside]
    output = schema.append(ROW_ADDRESS_FIELD)
    for condition in outside:
        for name in condition.columns:
            if schema.get_field_index(name) < 0:
                schema = schema.append(table_schema.field(name))
    names = [name for name in schema.names if name in stored]
    full = schema.append(ROW_ADDRESS_FIELD)
    most = None if outside else limit
    size = batch_rows(schema, dataset.get_fragments() if fragments is None else fragments)
    for batch in _scanned(dataset, names, inside, most, fragments, size, offset):
        batch = conform(batch, full)
        for condition in outside:
            batch = batch.filter(condition.met_in(batch))
        if batch.num_rows:
            yield batch.select(output.names) if outside else batch


def _scanned(
    dataset: Any,
    names: Sequence[str],
    filters: Sequence[Filter],
    limit: int | None,
    fragments: Sequence[Any] | None,
    size: int,
    offset: int,
) -> Iterator[pa.RecordBatch]:
    """The stored columns `names` and `_rowaddr`, in batches of about `size` rows."""
    if names and not filters and limit is None:
        every = dataset.get_fragments() if fragments is None else fragments
        yield from (batch for _, batch in whole_fragments(dataset, names, every, size))
        return
    scanner = dataset.scanner(
        columns=names,
        filter=" AND ".join(f"({f.lance})" for f in filters) or None,
        limit=limit,
        offset=offset or None,
        fragments=fragments,
        batch_size=size,
        with_row_address=True,
        scan_stats_callback=lance_reads(),
    )
    yield from batches_of(scanner)


def every_value(dataset: Any, field: pa.Field, fragments: Sequence[Any]) -> Iterator[pa.Array]:
    """A column of all rows of `fragments`, deleted ones too; null where it is not stored."""
    schema = pa.schema([field])
    if field.name not in dataset.schema.names:
        yield from (pa.nulls(fragment.physical_rows, field.type) for fragment in fragments)
        return
    scanner = every_row(dataset, schema.names, fragments, batch_rows(schema, fragments))
    for batch in batches_of(scanner):
        yield conform(batch, schema).column(0)


def read_table(dataset: Any, schema: pa.Schema, condition: str | None = None) -> pa.Table:
    """The columns of `schema` and `_rowaddr` of all rows that meet `condition`."""
    stored = set(dataset.schema.names)
    names = [name for name in schema.names if name in stored]
    plain = condition is None and names
    addresses = counted_addresses(dataset.get_fragments()) if plain else None
    scanner = dataset.scanner(
        columns=names,
        filter=condition,
        batch_size=batch_rows(schema, dataset.get_fragments()),
        with_row_address=addresses is None,
    )
    table = rows_of(scanner)
    if addresses is not None:
        table = table.append_column(ROW_ADDRESS_FIELD, pa.array(addresses))
    full = schema.append(ROW_ADDRESS_FIELD)
    if table.schema.equals(full):
        return table
    batches = [conform(batch, full) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, full)


def take_rows(dataset: Any, schema: pa.Schema, row_ids: RowAddresses) -> pa.Table:
    """The columns of `schema` of the rows with these ids, in the order asked."""
    stored = set(dataset.schema.names)
    names = [name for name in schema.names if name in stored]
    if not names:
        arrays = [pa.nulls(len(row_ids), field.type) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)
    # Lance's only way by row id; the public `take` counts rows from the start of the table.
    table = dataset._take_rows(pa.array(row_ids), names)  # noqa: SLF001
    if table.schema.equals(schema):
        return table
    return pa.Table.from_batches([conform(b, schema) for b in table.to_batches()], schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns and types; columns that it lacks are null."""
    if batch.schema.equals(schema):
        return batch
    arrays = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        array = batch.column(index)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fragment_groups(dataset: Any, most: int, only: frozenset[int] | None = None) -> list[list[Any]]:
    """The dataset's fragments, or only some, in at most `most` runs of about equally many rows."""
    fragments = [f for f in dataset.get_fragments() if only is None or f.fragment_id in only]
    if len(fragments) <= 1 or most <= 1:
        return [fragments]
    rows = [fragment.metadata.num_rows for fragment in fragments]
    total, seen = max(1, sum(rows)), 0
    groups: list[list[Any]] = [[] for _ in range(most)]
    for fragment, count in zip(fragments, rows, strict=True):
        groups[min(most - 1, seen * most // total)].append(fragment)
        seen += count
    return [group for group in groups if group]


def batch_rows(schema: pa.Schema, fragments: Sequence[Any] = ()) -> int:
    """The rows per batch of these columns; those of `fragments` may have long values."""
    rows = max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, BATCH_BYTES // max(1, row_bytes(schema))))
    if not varies(schema):
        return rows
    sample = fragments[:_SAMPLED_FRAGMENTS]
    stored = [
        (sum(f.file_size_bytes or 0 for f in fragment.metadata.files), fragment)
        for fragment in sample
    ]
    widest = max((size / max(1, fragment.physical_rows) for size, fragment in stored), default=0)
    return rows if not widest else max(1, min(rows, int(Batches.most_bytes / widest)))


def row_bytes(schema: pa.Schema) -> int:
    """About how many bytes a row of these columns takes in memory."""
    return sum(map(_value_bytes, schema.types))


def varies(schema: pa.Schema) -> bool:
    """Whether values of these columns vary in length, so that `row_bytes` guesses."""
    return any(map(_is_varying, schema.types))


def _is_varying(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return _is_varying(kind.value_type)
    try:
        kind.bit_width  # noqa: B018 (of one width)
    except ValueError:
        return True
    return False


def _value_bytes(kind: pa.DataType) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _value_bytes(kind.value_type)
    if pa.types.is_struct(kind):
        return sum(_value_bytes(field.type) for field in kind)
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return _VARYING_BYTES
