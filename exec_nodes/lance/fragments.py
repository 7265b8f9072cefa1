"""All rows of some fragments of a Lance table, in their order.

Row addresses are counted: asking Lance for them costs as much as a column. Lance also takes a long
time to leave deleted rows out (350,000 rows of 8 bytes, a quarter of them deleted here and there:
15 ms; 6 with the deleted ones among them), so that is done here.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.filter_rows import Flags, keep_rows
from exec_nodes.base.columns import ROW_ADDRESS, ROW_ADDRESS_FIELD, RowAddresses
from exec_nodes.base.counting import lance_reads
from exec_nodes.lance.deletion_files import ReadFile, deleted_offsets
from exec_nodes.lance.reading import batches_of, rows_of

_ROW_ID = "_rowid"
# A row address is its fragment's number, then the row's offset in this many bits.
FRAGMENT_BITS = 32


def fragments_of_task(dataset: Any, number: int, tasks: int) -> list[Any]:
    """The share of a task in the fragments of a version, where so many tasks are about to have the
    same number of rows."""
    fragments = sorted(dataset.get_fragments(), key=lambda each: -each.metadata.num_rows)
    return fragments[number::tasks]


def fragment_identity(uri: str, fragment: Any) -> Hashable:
    """Identifies the values of a fragment of the table at `uri`, in every version, whatever rows
    were deleted. Resident columns are keyed by this and by the column's field id.

    Files are never rewritten under their names, but another file may hold a column from some
    version on, and an overlay replace values of some rows.
    """
    metadata = fragment.metadata
    files = tuple(map(_file, metadata.files))
    overlays = tuple(
        (_file(overlay.data_file), overlay.committed_version) for overlay in metadata.overlays
    )
    return (uri, metadata.id, files, overlays)


def overlaid_fields(fragment: Any) -> frozenset[int]:
    """The ids of the fields whose values an overlay replaces. Indexes go on covering the fragment,
    with the old values."""
    return frozenset(
        id_ for overlay in fragment.metadata.overlays for id_ in overlay.data_file.fields
    )


def field_ids(dataset: Any, path: str) -> tuple[int, ...]:
    """The ids of the fields on a path, `column.field`, and of those below it, by which Lance knows
    them whatever their names; () if the rows don't have it."""
    inside, ids = dataset.lance_schema.fields(), []
    for name in path.split("."):
        fields = [field for field in inside if field.name() == name]
        if not fields:
            return ()
        ids.append(fields[0].id())
        inside = fields[0].children()
    return (*ids, *(field.id() for field in inside))


def _file(file: Any) -> Hashable:
    """A file and which of its columns hold which fields."""
    return file.path, file.base_id, tuple(file.fields), tuple(file.column_indices)


def whole_fragments(
    dataset: Any, names: Sequence[str], fragments: Sequence[Any], batch_rows: int
) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Batches of each of `fragments`: the stored columns `names` and `_rowaddr` of its rows."""
    deleted = _have_deletions(fragments)
    batches = batches_of(every_row(dataset, names, fragments, batch_rows))
    for fragment in fragments:
        start = fragment.fragment_id << FRAGMENT_BITS
        offset = 0
        while offset < fragment.physical_rows:
            batch = next(batches)
            live = (_live if deleted else _counted)(batch, start + offset)
            offset += batch.num_rows
            if live.num_rows:
                yield fragment, live
        if offset != fragment.physical_rows:  # all addresses would be wrong from here on
            raise RuntimeError(f"Lance read across the end of fragment {fragment.fragment_id}")


def every_row(dataset: Any, names: Sequence[str], fragments: Sequence[Any], batch_rows: int) -> Any:
    """A scanner of the stored columns `names` of all rows of `fragments`, deleted ones too; where
    there are any, it also gives `_rowid`, which is null for these."""
    deleted = _have_deletions(fragments)
    return dataset.scanner(
        columns=list(names),
        fragments=list(fragments),
        batch_size=batch_rows,
        with_row_id=deleted,
        include_deleted_rows=deleted,
        scan_stats_callback=lance_reads(),
    )


def live_addresses(dataset: Any, fragment: Any, read: ReadFile | None = None) -> RowAddresses:
    """The addresses of the rows of a fragment; `read` as `deleted_offsets` takes it."""
    if not fragment.num_deletions:
        return _every_address(fragment)
    deleted = None if read is None else deleted_offsets(fragment, read)
    if deleted is not None:
        live = np.ones(fragment.physical_rows, np.bool_)
        live[deleted] = False
        start = np.uint64(fragment.fragment_id << FRAGMENT_BITS)
        return np.flatnonzero(live).astype(np.uint64) + start
    batches = whole_fragments(dataset, (), [fragment], fragment.physical_rows)
    addresses = [batch.column(ROW_ADDRESS).to_numpy() for _, batch in batches]
    return np.concatenate([np.empty(0, np.uint64), *addresses])


def counted_addresses(fragments: Sequence[Any]) -> RowAddresses | None:
    """The addresses of all rows of `fragments`; None where rows were deleted."""
    return None if _have_deletions(fragments) else all_addresses(fragments)


def all_addresses(fragments: Sequence[Any]) -> RowAddresses:
    """The addresses of all rows of `fragments`, deleted ones too."""
    runs = [_every_address(fragment) for fragment in fragments]
    return runs[0] if len(runs) == 1 else np.concatenate([np.empty(0, np.uint64), *runs])


def within(addresses: RowAddresses, fragments: Collection[int]) -> Flags:
    """For each row, whether it is in one of the fragments, given by their numbers."""
    numbers = (addresses >> np.uint64(FRAGMENT_BITS)).astype(np.int64)
    ids = np.array(sorted(fragments), np.int64)
    if not len(ids):
        return np.zeros(len(addresses), np.bool_)
    places = np.minimum(ids.searchsorted(numbers), len(ids) - 1)
    inside: Flags = ids[places] == numbers
    return inside


def _have_deletions(fragments: Sequence[Any]) -> bool:
    return any(fragment.num_deletions for fragment in fragments)


def _every_address(fragment: Any) -> RowAddresses:
    start = fragment.fragment_id << FRAGMENT_BITS
    return np.arange(start, start + fragment.physical_rows, dtype=np.uint64)


def _counted(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    addresses = np.arange(start, start + batch.num_rows, dtype=np.uint64)
    return batch.append_column(ROW_ADDRESS_FIELD, pa.array(addresses))


def _live(batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
    """The rows that have an id, as deleted ones have none."""
    ids = batch.column(_ROW_ID)
    addresses = _counted(batch.drop_columns([_ROW_ID]), start)
    if not ids.null_count:
        return addresses
    return keep_rows(addresses, ids.is_valid().to_numpy(zero_copy_only=False))


class RowIds:
    """Maps row addresses to the stable row ids that some tables have instead."""

    def __init__(self, dataset: Any) -> None:
        """Reads the ids of all rows of `dataset`, which has stable row ids."""
        scanner = dataset.scanner(columns=[], with_row_id=True, with_row_address=True)
        rows = rows_of(scanner)
        addresses = rows[ROW_ADDRESS].to_numpy()
        order = np.argsort(addresses)
        self._addresses: RowAddresses = addresses[order]
        self._ids: RowAddresses = rows[_ROW_ID].to_numpy()[order]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._addresses.nbytes + self._ids.nbytes)

    def of(self, addresses: RowAddresses) -> RowAddresses:
        """The ids of rows that the table has, in the order of `addresses`."""
        return self._ids[self._addresses.searchsorted(addresses)]
