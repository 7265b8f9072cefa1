"""CREATE TABLE: what Spark's statement says, as `create_table` takes it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import CharType, DataType, StructType, VarcharType

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.spark.driver.description import COMMENT, comment_of, text_of_comment
from memwal_sql.spark.types import arrow_schema, parts_of_type
from memwal_sql.state.defaults import DEFAULT_KEY, defaults_of, stored_defaults
from memwal_sql.table import Table
from memwal_sql.write.router import active_spec
from planner.regions.text import spec_of, text_of

_PROPERTIES = {"primarykey": "primaryKey", "regions": "regions"}
# Spark adds the first to every statement; `version` is what a table shows.
_OF_SPARK = ("owner", "version", "is_managed_location", "table_type")
_OPTION = "option."
# Spark's count months, days and hours since 1970; those of regions are parts of a calendar date.
_SINCE_1970 = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


@dataclass(frozen=True)
class Definition:
    """A table that a statement describes."""

    schema: pa.Schema
    primary_key: tuple[str, ...]
    regions: str | None

    @classmethod
    def of(cls, request: Mapping[str, Any], existing: Table | None = None) -> Definition:
        """The definition in a request. What it leaves out is as `existing` has it.

        Raises InvalidCallError and UnsupportedError for what a table can't have.
        """
        properties, comment = _properties(request["properties"], request["provider"])
        for name, value in request["options"].items():  # of the writer that brings the rows
            if (known := _PROPERTIES.get(name.lower())) is not None:
                properties.setdefault(known, value)
        key = _agreed("primary key", _names(properties.get("primaryKey")), _key(request))
        regions = _agreed(
            "regions",
            _canonical(properties.get("regions")),
            _canonical(_regions(request["partitions"])),
        )
        if key is None and existing is not None:
            key = existing.primary_key
        if key is None:
            raise InvalidCallError(
                f"{request['name']} needs a primary key, whose rows replace one another: add "
                "TBLPROPERTIES ('primaryKey' = 'id') or PRIMARY KEY (id); in Python "
                '.tableProperty("primaryKey", "id"), or .option("primaryKey", "id") with '
                "saveAsTable"
            )
        columns = parsed(request["columns"])
        fields = columns_of(columns, request["defaults"])
        metadata = None if comment is None else {COMMENT: comment.encode()}
        return cls(pa.schema(fields, metadata), key, regions)

    def _required(self, schema: pa.Schema) -> set[str]:
        return {field.name for field in schema if not field.nullable} | set(self.primary_key)

    def check_same(self, table: Table, *, empty: bool) -> None:
        """Raise UnsupportedError unless the table is as described: what is there is replaced in
        one step, or not at all.

        Not `empty` is a table of the rows of a query, whose columns alone are described.
        """
        spec = active_spec(table.info)
        regions = "manual" if spec is None else text_of(spec)
        comment = text_of_comment(self.schema)
        same = {
            "columns": [(field.name, field.type) for field in self.schema]
            == [(field.name, field.type) for field in table.schema],
            "primary key": self.primary_key == table.primary_key,
            "regions": self.regions in (None, regions),
            "comment": comment == comment_of(table) or (comment is None and not empty),
        }
        if empty and same["columns"]:
            same["NOT NULL"] = self._required(self.schema) == self._required(table.schema)
            same["defaults"] = defaults_of(self.schema) == stored_defaults(table.schema)
            comments = [
                list(map(text_of_comment, columns)) for columns in (self.schema, table.schema)
            ]
            same["comments of columns"] = comments[0] == comments[1]
        differs = [what for what, is_same in same.items() if not is_same]
        if differs:
            raise UnsupportedError(
                f"{table.uri} exists, with other {' and '.join(differs)}: a table can't be "
                "replaced by such a one in one step. Change its columns by ALTER TABLE and "
                "replace its rows by INSERT OVERWRITE; or DROP TABLE first, which readers see"
            )


def parsed(columns: str) -> StructType:
    """The columns of a text of JSON, as Java writes them."""
    return StructType.fromJson(json.loads(columns))


def columns_of(columns: StructType, defaults: Mapping[str, str]) -> list[pa.Field]:
    """Columns with their comments and defaults. Raises UnsupportedError for types that a table
    can't have."""
    sized = {
        column.name: column.dataType.simpleString()
        for column in columns
        if any(isinstance(part, CharType | VarcharType) for part in parts_of_type(column.dataType))
    }
    if sized:
        raise UnsupportedError(f"a table has no lengths of texts: write STRING instead of {sized}")
    return list(_with_metadata(columns, arrow_schema(columns), defaults))


def arrow_type(name: str, kind: DataType) -> pa.DataType:
    """The type of a column. Raises UnsupportedError as `columns_of` does."""
    return columns_of(StructType().add(name, kind), {})[0].type


def _with_metadata(
    columns: StructType, schema: pa.Schema, defaults: Mapping[str, str]
) -> Iterator[pa.Field]:
    for column, field in zip(columns, schema, strict=True):
        metadata = {}
        comment = (column.metadata or {}).get(COMMENT.decode())
        if comment is not None:
            metadata[COMMENT] = comment.encode()
        if column.name in defaults:
            metadata[DEFAULT_KEY] = defaults[column.name].encode()
        yield field.with_metadata(metadata or None)


def _properties(
    given: Mapping[str, str], provider: str | None
) -> tuple[dict[str, str], str | None]:
    """The properties of a table of this package, and the comment. `provider` is the format that
    Spark names where nobody does."""
    properties, comment = {}, None
    for name, value in given.items():
        lower = name.lower()
        if lower == "comment":
            comment = value
        elif lower == "provider":
            if value.lower() not in ("memwal", provider):
                raise UnsupportedError(f"USING {value}: this catalog has tables of memwal only")
        elif lower in ("location", "external"):
            raise UnsupportedError(
                "a table of this catalog has its place in the catalog's folder: leave LOCATION, "
                'EXTERNAL and option("path") out'
            )
        elif lower in _PROPERTIES:
            properties[_PROPERTIES[lower]] = value
        elif lower not in _OF_SPARK and not lower.startswith(_OPTION):  # which is there twice
            close = difflib.get_close_matches(lower, _PROPERTIES, 1)
            hint = f": did you mean {_PROPERTIES[close[0]]!r}?" if close else ""
            raise UnsupportedError(
                f"a table has no property {name!r}{hint} It takes {sorted(_PROPERTIES.values())}"
            )
    return properties, comment


def _key(request: Mapping[str, Any]) -> tuple[str, ...] | None:
    key = None
    for constraint in request["constraints"]:
        if "primaryKey" not in constraint:
            raise UnsupportedError(
                f"{constraint['text']}: a table checks no constraint but its primary key: leave "
                "it out, and check the rows before they are written"
            )
        key = tuple(constraint["primaryKey"])
    return key


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise InvalidCallError(f"primaryKey={text!r} must be names separated by commas: 'a, b'")
    return names


def _canonical(regions: str | None) -> str | None:
    return None if regions is None else text_of(spec_of(regions, 1))


def _regions(transforms: Sequence[Mapping[str, Any]]) -> str | None:
    return ", ".join(map(_region, transforms)) or None


def _region(transform: Mapping[str, Any]) -> str:
    """The text of a region field. Raises UnsupportedError for a function that is none."""
    name, columns = transform["name"], transform["columns"]
    part = _SINCE_1970.get(name)
    if part is not None:
        raise UnsupportedError(
            f"{name}({', '.join(columns)}) counts from 1970, and regions have parts of a calendar "
            f"date: write PARTITIONED BY ({part}({', '.join(columns)})) if that is meant"
        )
    if name == "bucket" and len(columns) > 1:
        name = "multi_bucket"
    arguments = [*(f"`{column}`" for column in columns), *map(str, transform["numbers"])]
    return f"{name}({', '.join(arguments)})"


def _agreed(what: str, first: Any, second: Any) -> Any:
    """What one or both of two places say."""
    if first is not None and second is not None and first != second:
        raise InvalidCallError(f"the statement gives two {what}s, {first!r} and {second!r}")
    return second if first is None else first
