"""Checks of a region spec against a table, and the types that follow from it.

Protocol rules 10 and 12; specification 1, "Region Expression".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.errors import InvalidCallError
from planner.regions.expression import check_expression, evaluate_expression, known_bucket
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from planner.regions.transform import (
    DATE_PARTS,
    LANCE_BUCKETS,
    SOURCE_TYPES,
    evaluate_columns,
    num_buckets_of,
)
from planner.regions.values import type_name, type_of

_ONE_SOURCE = ("identity", *DATE_PARTS, "bucket", "truncate")
_SIGNED = (pa.int8(), pa.int16(), pa.int32())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_SAMPLE_INTEGERS = [0, 1, -1, 2, 3, 5, 7, 10, 100, 127, -128, None]
_SAMPLE_TEXT = ["", "a", "b", "abc", "é", "0", "12", "2024-01-31", "key-00001", " x ", "Z", None]


def validate(spec: RegionSpec, schema: pa.Schema, primary_key: Sequence[str]) -> RegionSpec:
    """`spec` with its result types filled in, or InvalidCallError naming what is wrong with it.

    Protocol rule 10: the source columns must be part of the primary key, or a key could be in two
    regions and an old row would come back. Expressions are tried on samples.
    """
    return RegionSpec(spec.spec_id, tuple(_bound(f, schema, primary_key) for f in spec.fields))


def _bound(field: RegionField, schema: pa.Schema, primary_key: Sequence[str]) -> RegionField:
    kinds = [_source_type(field, name, schema, primary_key) for name in field.source_columns]
    if field.transform in _ONE_SOURCE and len(kinds) != 1:
        raise _wrong(field, f"{field.transform} takes one column, not {len(kinds)}")
    if field.expression is not None:
        bucket = known_bucket(field.expression, len(kinds))
        if bucket is None:
            return _bound_expression(field, field.expression, kinds)
        parameters = {**field.parameters, "num_buckets": str(bucket[1])}
        field = replace(field, transform=bucket[0], expression=None, parameters=parameters)
    result = _result_type(field, kinds)
    if field.result_type and type_of(field.result_type) != result:
        raise _wrong(field, f"gives {type_name(result)}, but declares {field.result_type}")
    return replace(field, result_type=type_name(result))


def _source_type(
    field: RegionField, name: str | None, schema: pa.Schema, primary_key: Sequence[str]
) -> pa.DataType:
    if name is None or name not in schema.names:
        raise _wrong(field, f"the table has no column {name!r}; it has {schema.names}")
    if name not in primary_key:
        raise _wrong(
            field,
            f"column {name!r} is not part of the primary key {list(primary_key)}, so one key could "
            "be in two regions; add it to the primary key or use a key column",
        )
    kind = schema.field(name).type
    if pa.types.is_floating(kind):
        raise _wrong(field, f"column {name!r} is a {kind}; floats have no sound equality")
    type_name(kind)
    return kind


def _result_type(field: RegionField, kinds: Sequence[pa.DataType]) -> pa.DataType:
    if field.transform == "bucket" and field.native and num_buckets_of(field) > LANCE_BUCKETS:
        raise _wrong(field, f"Lance has at most {LANCE_BUCKETS} buckets")
    return evaluate_columns(field, [pa.array([], kind) for kind in kinds], 0).type


def _bound_expression(field: RegionField, sql: str, kinds: Sequence[pa.DataType]) -> RegionField:
    check_expression(sql, len(kinds))
    samples = _samples(kinds)
    declared = type_of(field.result_type) if field.result_type else None
    values = evaluate_expression(sql, samples, declared)
    if pa.types.is_floating(values.type) or pa.types.is_nested(values.type):
        raise _wrong(field, f"gives {values.type}; cast it to an integer or a string")
    _check_promotion(field, sql, kinds, samples, values)
    parameters = {**field.parameters, SOURCE_TYPES: ";".join(map(type_name, kinds))}
    return replace(field, result_type=type_name(values.type), parameters=parameters)


def _check_promotion(
    field: RegionField,
    sql: str,
    kinds: Sequence[pa.DataType],
    samples: Sequence[pa.Array],
    values: pa.Array,
) -> None:
    """The same numbers give the same values in integer columns of every width that holds them."""
    whole = [at for at, kind in enumerate(kinds) if pa.types.is_integer(kind)]
    if not whole:
        return
    unsigned = any(pa.types.is_unsigned_integer(kinds[at]) for at in whole)
    for other in (*(_UNSIGNED if unsigned else _SIGNED), pa.int64()):
        fits = [_fits(samples[at], other) for at in whole]
        rows = pa.array(np.flatnonzero(np.logical_and.reduce(fits)))
        changed = [
            s.take(rows).cast(other) if at in whole else s.take(rows)
            for at, s in enumerate(samples)
        ]
        try:
            result = evaluate_expression(sql, changed, values.type)
        except InvalidCallError as error:
            raise _wrong(field, f"fails for integers of type {other}: {error}") from error
        if result != values.take(rows):
            raise _wrong(
                field,
                f"gives other values for the same numbers as {other}; hash with murmur3, "
                "or cast to BIGINT first",
            )


def _fits(sample: pa.Array, kind: pa.DataType) -> npt.NDArray[np.bool_]:
    bits = kind.bit_width - int(pa.types.is_signed_integer(kind))
    low = -(2**bits) if pa.types.is_signed_integer(kind) else 0
    return np.array([v is None or low <= v < 2**bits for v in sample.to_pylist()], np.bool_)


def _samples(kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Sample columns of one length, the shorter ones repeated."""
    samples = [_sample(kind) for kind in kinds]
    rows = np.arange(max(map(len, samples)))
    return [sample.take(pa.array(rows % len(sample))) for sample in samples]


def _sample(kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        values = [v if signed or v is None or v >= 0 else -v - 1 for v in _SAMPLE_INTEGERS]
        # The largest of each width show where arithmetic wraps around.
        largest = [2**bits - 1 for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
        limit = 2 ** (kind.bit_width - int(signed))
        return pa.array([*values, *(v for v in largest if v < limit)], kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array(_SAMPLE_TEXT, kind)
    numbers = pa.array(_SAMPLE_INTEGERS, pa.int64())
    if pa.types.is_boolean(kind):
        return pc.equal(numbers, 1)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array(
            [
                None if t is None else t.encode().ljust(kind.byte_width, b"\0")[: kind.byte_width]
                for t in _SAMPLE_TEXT
            ],
            kind,
        )
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if t is None else t.encode() for t in _SAMPLE_TEXT], kind)
    if pa.types.is_decimal(kind):
        return (
            pa.array([None if v is None else v % 10 for v in _SAMPLE_INTEGERS])
            .cast(pa.int8())
            .cast(kind)
        )
    if pa.types.is_time(kind):
        numbers = pc.abs(numbers)
    return numbers.cast(pa.int32()).cast(kind) if kind.bit_width == 32 else numbers.cast(kind)


def _wrong(field: RegionField, what: str) -> InvalidCallError:
    return InvalidCallError(f"region field {field.field_id!r}: {what}")
