"""Whether two answers are the same answer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

RELATIVE_TOLERANCE = 1e-9
"""Sums of floating point numbers depend on the order of their terms."""


def difference(actual: pa.Table, expected: pa.Table, *, ordered: bool) -> str | None:
    """Say how `actual` differs from `expected`, or None if it does not.

    Without `ordered`, rows are compared as a multiset. Floating point columns may differ by
    `RELATIVE_TOLERANCE`; types of another width (int32 and int64) are equal if their values are.
    """
    if actual.column_names != expected.column_names:
        return f"columns {actual.column_names} instead of {expected.column_names}"
    if actual.num_rows != expected.num_rows:
        return f"{actual.num_rows} rows instead of {expected.num_rows}"
    if not ordered:
        actual, expected = _sorted(actual), _sorted(expected)
    for name in expected.column_names:
        same = _same(actual[name], expected[name])
        if not same.all():
            row = int(np.argmin(same))
            return (
                f"{name} is {actual[name][row].as_py()!r} instead of "
                f"{expected[name][row].as_py()!r} in row {row}"
            )
    return None


def _sorted(table: pa.Table) -> pa.Table:
    # Floats last: two that differ in their last digit only must not decide the order alone.
    floats = [
        name for name in table.column_names if pa.types.is_floating(table.schema.field(name).type)
    ]
    exact = [name for name in table.column_names if name not in floats]
    return table.sort_by([(name, "ascending") for name in [*exact, *floats]])


def _same(actual: pa.ChunkedArray, expected: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """One bool for each row; null equals null."""
    if pa.types.is_floating(expected.type):
        left, right = (column.cast(pa.float64()).to_numpy() for column in (actual, expected))
        close: npt.NDArray[np.bool_] = np.isclose(
            left, right, RELATIVE_TOLERANCE, 0.0, equal_nan=True
        )
        null_alike = actual.is_valid().to_numpy() == expected.is_valid().to_numpy()
        return np.asarray(close & null_alike, dtype=np.bool_)
    equal = pc.equal(actual.cast(expected.type), expected)
    both_null = pc.and_(actual.is_null(), expected.is_null())
    return np.asarray(
        pc.fill_null(pc.or_kleene(equal, both_null), False).to_numpy(), dtype=np.bool_
    )
