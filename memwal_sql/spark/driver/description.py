"""A table as Spark's catalogs describe one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from memwal_sql.spark.types import spark_schema
from memwal_sql.state.defaults import stored_defaults
from memwal_sql.table import Table
from planner.regions.field import RegionField
from planner.regions.text import text_of

COMMENT = b"comment"
"""The metadata of a field, or of a schema, that has its comment."""
_PLAIN = (pa.types.is_integer, pa.types.is_boolean)
# Where Spark looks for the default of a column: for rows to write, and for rows written before.
_DEFAULT, _EARLIER = "CURRENT_DEFAULT", "EXISTS_DEFAULT"


def described(name: str, table: Table) -> dict[str, Any]:
    """Columns as JSON of Spark's schemas, key, regions, version and place of a table with a name.

    `partitions` are the regions as Spark's transforms, if all of them can be put so.
    """
    info = table.info
    specs = [spec for spec in info.region_specs if not spec.is_manual]
    spec = max(specs, key=lambda spec: spec.spec_id, default=None)
    fields = () if spec is None else spec.fields
    transforms = [_transform(field) for field in fields if field.transform != "unsharded"]
    return {
        "found": True,
        "name": name,
        "path": table.uri,
        "incarnation": incarnation_of(table),
        "columns": _columns(table.schema).json(),
        "primaryKey": list(table.primary_key),
        "regions": "manual" if spec is None else text_of(spec),
        "partitions": [] if None in transforms else transforms,
        "version": table.version,
        "comment": comment_of(table),
    }


def incarnation_of(table: Table) -> str:
    """Tells the table from one that was at its place before."""
    return table.context.identity[1]


def comment_of(table: Table) -> str | None:
    """The comment of a table."""
    return text_of_comment(table.tracker.loaded.dataset.schema)


def _columns(schema: pa.Schema) -> StructType:
    defaults = stored_defaults(schema)
    fields = []
    for field, column in zip(schema, spark_schema(schema), strict=True):
        about = {}
        if (comment := text_of_comment(field)) is not None:
            about["comment"] = comment
        if (default := defaults.get(field.name)) is not None:
            about[_DEFAULT] = _literal(default, column)
            about[_EARLIER] = "NULL"
        fields.append(StructField(column.name, column.dataType, column.nullable, about))
    return StructType(fields)


def _literal(value: pa.Scalar, column: StructField) -> str:
    """A constant in Spark's SQL."""
    text = str(value.cast(pa.string()).as_py())
    if any(is_plain(value.type) for is_plain in _PLAIN):
        return text
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    kind = column.dataType.simpleString()
    return quoted if kind == "string" else f"CAST({quoted} AS {kind})"


def _transform(field: RegionField) -> dict[str, Any] | None:
    """A region field as a transform, with columns and numbers; None where Spark has no form."""
    if field.transform is None or None in field.source_columns:
        return None
    name = "lance_bucket" if field.native else field.transform
    numbers = [int(number) for number in field.parameters.values()]
    return {"name": name, "columns": list(field.source_columns), "numbers": numbers}


def text_of_comment(commented: pa.Field | pa.Schema) -> str | None:
    """The comment in metadata."""
    comment = (commented.metadata or {}).get(COMMENT)
    return None if comment is None else comment.decode(errors="replace")
