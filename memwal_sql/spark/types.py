"""Arrow schemas as Spark's, and batches in the types that Spark takes over without a copy.

Spark checks a batch against its own idea of the Arrow types, so a type without an equal is cast to
the next wider one. Reading never loses a value; types that would are refused on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DecimalType,
    GeographyType,
    GeometryType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)

from exec_nodes.evolution.known import known_column
from exec_nodes.evolution.widen import widens
from memwal_sql.errors import InvalidCallError, UnsupportedError

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.timestamp("us"),
}
_MOST_DIGITS = 38
# Arrow or Lance has no such type, or one that would come back as another.
_UNSTORED = (
    CalendarIntervalType,
    GeographyType,
    GeometryType,
    NullType,
    UserDefinedType,
    VariantType,
    YearMonthIntervalType,
)


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns as Spark has them. Raises UnsupportedError naming those it can't hold."""
    fields, bad = [], {}
    for field in schema:
        try:
            kind = from_arrow_type(_spark_arrow(field.type))
        except Exception as error:  # Spark's, of several kinds
            bad[field.name] = f"{field.type} ({_first_line(error)})"
            continue
        if any(
            isinstance(part, DecimalType) and part.precision > _MOST_DIGITS
            for part in parts_of_type(kind)
        ):
            bad[field.name] = f"{field.type} (Spark's decimals have {_MOST_DIGITS} digits at most)"
            continue
        fields.append(StructField(field.name, kind, field.nullable))
    if bad:
        raise UnsupportedError(
            f'Spark has no type for the columns {bad}: leave them out with option("columns", ...)'
        )
    return StructType(fields)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark hands over for a table. Raises UnsupportedError naming the columns
    that have none, or that no table holds."""
    bad = {}
    for field in schema.fields:
        unknown = [part for part in parts_of_type(field.dataType) if _is_unstored(part)]
        if unknown:
            bad[field.name] = unknown[0].simpleString()
    _check_stored(bad, schema)
    return read_schema(schema)


def read_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark takes. Raises UnsupportedError naming the columns that have
    none."""
    fields, bad = [], {}
    for spark_field in schema.fields:
        try:
            (field,) = to_arrow_schema(StructType([spark_field]), timezone="UTC")
        except Exception as error:  # Spark's, of several kinds
            bad[spark_field.name] = f"{spark_field.dataType.simpleString()} ({_first_line(error)})"
            continue
        fields.append(field.remove_metadata())
    _check_stored(bad, schema)
    return pa.schema(fields)


def _check_stored(bad: Mapping[str, str], schema: StructType) -> None:
    if not bad:
        return
    name = next(iter(bad))
    kinds = {type(part) for part in parts_of_type(schema[name].dataType)}
    remedy = f"cast them, as CAST({name} AS STRING) does"
    if VariantType in kinds:
        remedy = f"write their text, to_json({name}) AS {name}, and read it with parse_json({name})"
    raise UnsupportedError(
        f"a memwal table can't hold the columns {dict(bad)}: {remedy}, or leave them out"
    )


def _is_unstored(kind: DataType) -> bool:
    collated = isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()
    return collated or isinstance(kind, _UNSTORED)


def parts_of_type(kind: DataType) -> Iterator[DataType]:
    """The type and all types within it."""
    yield kind
    inner: list[DataType] = []
    if isinstance(kind, ArrayType):
        inner = [kind.elementType]
    elif isinstance(kind, MapType):
        inner = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        inner = [field.dataType for field in kind.fields]
    for child in inner:
        yield from parts_of_type(child)


def as_spark(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    """The batch in the types that Spark expects; equal columns are not copied."""
    columns = [_cast(column, field) for column, field in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if column.type == kind:
        return column
    if kind != _spark_arrow(column.type) and widens(kind, column.type):
        return known_column(column, field)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        return pc.cast(column, kind)
    except pa.ArrowNotImplementedError:
        return pc.cast(pc.cast(column, _spark_arrow(column.type)), kind)
    except pa.ArrowInvalid as error:
        raise InvalidCallError(
            f"column {field.name!r} has a value that Spark can't hold as {kind}: {error}"
        ) from error


def _spark_arrow(kind: pa.DataType) -> pa.DataType:
    """The type that Spark can hold for every value of `kind`."""
    if isinstance(kind, pa.BaseExtensionType):
        return _spark_arrow(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _spark_arrow(kind.value_type)
    if pa.types.is_time32(kind):
        return pa.time64("ns")
    if pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_spark_arrow(f.type)) for f in kind])
    if pa.types.is_map(kind):
        key, item = (f.with_type(_spark_arrow(f.type)) for f in (kind.key_field, kind.item_field))
        return pa.map_(key, item, keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_spark_arrow(kind.value_type)))
    return kind


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
