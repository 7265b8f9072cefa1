"""Region specs: how the rows of a table are divided into regions.

Specification 1, "Region Spec", "Region Expression" and "Region Transform"; protocol rules 10 to 13.
A spec has fields; a field derives one region value from key columns of a row. All rows with the
same values in all fields belong to one region.

A *region value* is a plain Python value: `None`, `bool`, `int`, `str` or `bytes`. Dates, times and
timestamps are integers in the unit of the field's result type, decimals are their plain text
(`"1.50"`). It is what region manifests store, labels print and pruning compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.keys.keys import one_array
from planner.regions.field import RegionField
from planner.regions.transform import evaluate_field, key_function_of
from planner.regions.values import RegionValue, region_values

MANUAL_SPEC_ID = 0
# No table comes near: each field divides all regions again.
_MOST_FIELDS = 64

KeyFunction = Callable[[object], tuple[RegionValue, ...]]

# Beyond this span a table indexed by value costs more than sorting.
_DENSE_SPAN = 65_536


@dataclass(frozen=True)
class RegionSpec:
    """A region spec: `spec_id` (positive; 0 means manual regions) and its fields in order."""

    spec_id: int
    fields: tuple[RegionField, ...]

    def __post_init__(self) -> None:
        if self.spec_id < 0 or (self.spec_id == MANUAL_SPEC_ID) != (not self.fields):
            raise InvalidCallError(
                f"region spec {self.spec_id} with {len(self.fields)} fields: the id must be "
                "positive for a spec with fields, and 0 for manual regions"
            )
        check_number_of_fields(len(self.fields))
        seen: set[str] = set()
        for name in self.field_ids:
            if name in seen:
                raise InvalidCallError(
                    f"region field {name!r} appears twice; give each its own name="
                )
            seen.add(name)

    @property
    def is_manual(self) -> bool:
        """True when the caller names the region of every row itself."""
        return not self.fields

    @property
    def field_ids(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(f.field_id for f in self.fields)

    @property
    def source_columns(self) -> tuple[str, ...]:
        """The columns that the spec reads, each once, in the order of first use."""
        names = (name for f in self.fields for name in f.source_columns if name is not None)
        return tuple(dict.fromkeys(names))

    def reads_only(self, columns: Sequence[str]) -> bool:
        """Whether the spec reads no other columns than these."""
        return set(self.source_columns) <= set(columns)

    def evaluate(self, table: pa.Table) -> pa.Table:
        """One column per field, named by its id, with the region values of the rows of `table`.

        Columns that `table` lacks read as NULL; other columns of `table` are ignored.
        """
        if self.is_manual:
            raise InvalidCallError("manual regions have no region values; name the region instead")
        return pa.table([evaluate_field(f, table) for f in self.fields], names=list(self.field_ids))

    def assign(self, table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
        """Divides the rows of `table` into regions.

        Returns the distinct combinations of region values (columns as `evaluate`; the order is
        fixed by the values present, not meaningful) and, for each row of `table`, the index of
        its combination.
        """
        return distinct_rows(self.evaluate(table))

    def values_of(self, distinct: pa.Table) -> list[dict[str, RegionValue]]:
        """The rows of `evaluate` or `assign` as region values by field id, one dict a row."""
        columns = [region_values(distinct.column(name)) for name in self.field_ids]
        names = self.field_ids
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def key_function(self, schema: pa.Schema, primary_key: Sequence[str]) -> KeyFunction:
        """A function from one key value to its region values, for point lookups.

        The key is a value for a single-column key and a tuple in key order otherwise, in the form
        of `exec_nodes.keys.keys` (temporal values as integers, decimals as little-endian
        bytes). The function is cached; hashing one integer or string key takes a microsecond.
        """
        types = tuple([schema.field(name).type for name in primary_key])
        return _key_function(self, tuple(primary_key), types)


def check_number_of_fields(fields: int) -> None:
    """Raise InvalidCallError for more fields than a spec may have."""
    if fields > _MOST_FIELDS:
        raise InvalidCallError(f"a region spec has {_MOST_FIELDS} fields at most, not {fields}")


@lru_cache(maxsize=256)
def _key_function(
    spec: RegionSpec, primary_key: tuple[str, ...], types: tuple[pa.DataType, ...]
) -> KeyFunction:
    if spec.is_manual:
        raise InvalidCallError("manual regions have no region values; name the region instead")
    functions = [key_function_of(f, primary_key, types) for f in spec.fields]
    if len(functions) == 1:
        only = functions[0]
        return lambda key: (only(key),)
    return lambda key: tuple([function(key) for function in functions])


def distinct_rows(table: pa.Table) -> tuple[pa.Table, npt.NDArray[np.int64]]:
    """The distinct rows of `table` (NULL equals NULL) and, per row, the index of its own.

    One column takes one pass: small integer ranges are counted, others dictionary-encoded.
    """
    codes: npt.NDArray[np.int64] | None = None
    for column in table.columns:
        own, size = _codes(column)
        codes = own if codes is None else _dense(codes * size + own)[1]
    if codes is None:
        raise ValueError("a table without columns has no distinct rows")
    first, index = _dense(codes)
    return table.take(pa.array(first)), index


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Row codes below the returned size, equal exactly where the values are equal."""
    array = one_array(column)
    if pa.types.is_integer(array.type) and array.type.bit_width <= 32 and not array.null_count:
        values = array.to_numpy().astype(np.int64)
        low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
        if high - low < _DENSE_SPAN:
            return values - low, high - low + 1
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, max(1, len(encoded.dictionary))


def _dense(
    codes: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The row of one occurrence of each code, ascending by code, and each row's rank."""
    top = int(codes.max()) + 1 if len(codes) else 0
    if top > max(_DENSE_SPAN * 2, 2 * len(codes)):
        _, first, index = np.unique(codes, return_index=True, return_inverse=True)
        return first, index.astype(np.int64)
    row_of = np.full(top, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    present = row_of >= 0
    rank = np.cumsum(present) - 1
    return row_of[present], rank[codes]
