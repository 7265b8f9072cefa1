"""All rows of some fragments of a Lance table, in their order.

Row addresses are counted: asking Lance for them costs as much as a column. Lance also takes a long
time to leave deleted rows out (350,000 rows of 8 bytes, a quarter of them deleted here and there:
15 ms; 6 with the deleted ones among them), so that is done here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.kernels.keep import Flags, keep_rows
from exec_nodes.sources.source import ROW_ADDRESS_FIELD, RowAddresses

_ROW_ID = "_rowid"
_FRAGMENT_BITS = 32


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some rows of a fragment one after the other, deleted ones among them.

    Attributes:
        offset: how many rows of the fragment come before.
        live: by row, whether it is not deleted; None if none is.
    """

    fragment: Any
    offset: int
    rows: pa.RecordBatch
    live: Flags | None

    def live_rows(self) -> pa.RecordBatch:
        """The columns and `_rowaddr` of the rows that are not deleted."""
        start = (self.fragment.fragment_id << _FRAGMENT_BITS) + self.offset
        addresses = np.arange(start, start + self.rows.num_rows, dtype=np.uint64)
        batch = self.rows.append_column(ROW_ADDRESS_FIELD, pa.array(addresses))
        return batch if self.live is None else keep_rows(batch, self.live)


def stretches(
    dataset: Any, names: Sequence[str], fragments: Sequence[Any], batch_rows: int
) -> Iterator[Stretch]:
    """The stored columns `names` of all rows of `fragments`."""
    deleted = any(fragment.num_deletions for fragment in fragments)
    scanner = dataset.scanner(
        columns=list(names),
        fragments=list(fragments),
        batch_size=batch_rows,
        with_row_id=deleted,
        include_deleted_rows=deleted,
    )
    batches = iter(scanner.to_batches())
    for fragment in fragments:
        offset = 0
        while offset < fragment.physical_rows:
            batch = next(batches)
            yield _stretch(fragment, offset, batch, deleted=deleted)
            offset += batch.num_rows
        if offset != fragment.physical_rows:  # all addresses would be wrong from here on
            raise RuntimeError(f"Lance read across the end of fragment {fragment.fragment_id}")


def live_flags(dataset: Any, fragment: Any) -> Flags | None:
    """By row of a fragment, whether it is not deleted; None if none is."""
    if not fragment.num_deletions:
        return None
    found = list(stretches(dataset, (), [fragment], fragment.physical_rows))
    flags = [
        np.ones(one.rows.num_rows, np.bool_) if one.live is None else one.live for one in found
    ]
    return np.concatenate(flags)


def counted_addresses(fragments: Sequence[Any]) -> RowAddresses | None:
    """The addresses of all rows of `fragments`; None where rows were deleted."""
    deleted = any(fragment.num_deletions for fragment in fragments)
    return None if deleted else all_addresses(fragments)


def all_addresses(fragments: Sequence[Any]) -> RowAddresses:
    """The addresses of all rows of `fragments`, deleted ones too."""
    starts = ((one.fragment_id << _FRAGMENT_BITS, one.physical_rows) for one in fragments)
    runs = [np.arange(start, start + rows, dtype=np.uint64) for start, rows in starts]
    return runs[0] if len(runs) == 1 else np.concatenate([np.empty(0, np.uint64), *runs])


def _stretch(fragment: Any, offset: int, batch: pa.RecordBatch, *, deleted: bool) -> Stretch:
    if not deleted:
        return Stretch(fragment, offset, batch, None)
    ids = batch.column(_ROW_ID)
    names = [name for name in batch.schema.names if name != _ROW_ID]
    live = ids.is_valid().to_numpy(zero_copy_only=False) if ids.null_count else None
    return Stretch(fragment, offset, batch.select(names), live)
