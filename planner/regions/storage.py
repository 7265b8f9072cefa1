"""Region specs as plain data for the MemWAL index details (specification 2, "RegionSpec").

Protocol rule 12: our buckets are stored as expressions, and recognised when read; a stored
`transform: bucket` was made by native code and follows native's rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from exec_nodes.base.errors import InvalidCallError, RepairError
from planner.regions.expression import bucket_expression, known_bucket, multi_bucket_expression
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from planner.regions.transform import num_buckets_of

_OURS = ("bucket", "multi_bucket")
# Native code may name the source column itself instead of its id.
_COLUMN = "column"


class StoredField(TypedDict):
    """A region field as stored, under the names of the specification."""

    field_id: str
    source_ids: list[int]
    transform: str | None
    expression: str | None
    result_type: str
    parameters: dict[str, str]


class StoredSpec(TypedDict):
    """A region spec as stored."""

    spec_id: int
    fields: list[StoredField]


def to_storage(spec: RegionSpec, schema_field_ids: Mapping[str, int]) -> StoredSpec:
    """`spec` as stored; `schema_field_ids` gives Lance's field id of each column."""
    fields = [_stored_field(field, schema_field_ids) for field in spec.fields]
    return {"spec_id": spec.spec_id, "fields": fields}


def from_storage(stored: StoredSpec, columns: Mapping[int, str]) -> RegionSpec:
    """The spec that was stored; `columns` gives the name of each of Lance's field ids today.

    A source id that no longer exists stands for a column that reads as NULL.
    """
    fields = tuple(_field(field, columns) for field in stored["fields"])
    try:
        return RegionSpec(stored["spec_id"], fields)
    except InvalidCallError as error:
        raise RepairError(
            f"the stored region spec {stored['spec_id']} is damaged: {error}"
        ) from error


def _stored_field(field: RegionField, ids: Mapping[str, int]) -> StoredField:
    transform, expression = field.transform, field.expression
    parameters = dict(field.parameters)
    if not field.native and transform in _OURS:
        buckets = num_buckets_of(field)
        columns = len(field.source_columns)
        multi = transform == "multi_bucket"
        expression = (
            multi_bucket_expression(columns, buckets) if multi else bucket_expression(buckets)
        )
        transform = None
        parameters.pop("num_buckets")
    return {
        "field_id": field.field_id,
        "source_ids": list(field.source_ids)
        or [_id(field, name, ids) for name in field.source_columns],
        "transform": transform,
        "expression": expression,
        "result_type": field.result_type,
        "parameters": parameters,
    }


def _id(field: RegionField, name: str | None, ids: Mapping[str, int]) -> int:
    if name is None or name not in ids:
        raise InvalidCallError(
            f"region field {field.field_id!r}: the table has no column {name!r}; "
            f"its columns are {sorted(ids)}"
        )
    return ids[name]


def _field(stored: StoredField, columns: Mapping[int, str]) -> RegionField:
    source_ids = tuple(stored["source_ids"])
    sources = tuple(columns.get(source) for source in source_ids)
    parameters = dict(stored["parameters"])
    if parameters.get(_COLUMN, "").strip():
        sources = (parameters[_COLUMN],)
    transform, expression = stored["transform"] or None, stored["expression"] or None
    native = transform in ("bucket", "unsharded")
    bucket = known_bucket(expression, len(sources)) if expression and transform is None else None
    if bucket is not None:
        transform, expression = bucket[0], None
        parameters["num_buckets"] = str(bucket[1])
    try:
        return RegionField(
            field_id=stored["field_id"],
            source_columns=sources,
            transform=transform,
            expression=expression,
            result_type=stored["result_type"],
            parameters=parameters,
            native=native,
            source_ids=source_ids,
        )
    except InvalidCallError as error:
        raise RepairError(f"a stored region field is damaged: {error}") from error
