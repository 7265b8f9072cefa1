"""Region ids derived from region values, so that two creators make one region.

Protocol rule 11. Pure functions; a caller that uses an id first checks that no listed region has
these values. LanceDB can write tables of some region specs: their regions get the ids that it
derives, so that it finds the same region.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from functools import lru_cache
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.arrays import is_text
from exec_nodes.base.errors import InvalidCallError
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from planner.regions.transform import LANCE_BUCKETS, num_buckets_of
from planner.regions.values import RegionValue, type_of

_LANCEDB = UUID(bytes=b"LSMWRITE_SHARD01")
_LANCEDB_SPEC_ID = 1  # the only one that it makes and writes

_DOMAIN = b"memwal_sql region id 1\x00"


def canonical(values: Mapping[str, RegionValue]) -> bytes:
    """An injective encoding of region values by field id, whatever the order of the mapping.

    Integers are encoded by value, so promoting a column's integer type changes nothing.
    """
    parts = [struct.pack("<I", len(values))]
    for name in sorted(values):
        parts.append(_sized(b"F", name.encode()))
        parts.append(_encoded(name, values[name]))
    return b"".join(parts)


def region_id(incarnation: UUID, spec_id: int, values: Mapping[str, RegionValue]) -> UUID:
    """The id of the region with `values` under spec `spec_id` of the MemWAL `incarnation`:
    a SHA-256 with the version and variant bits of a UUID v4."""
    digest = hashlib.sha256(
        _DOMAIN + incarnation.bytes + struct.pack("<I", spec_id) + canonical(values)
    ).digest()
    return UUID(bytes=digest[:16], version=4)


def new_region_id(incarnation: UUID, spec: RegionSpec, values: Mapping[str, RegionValue]) -> UUID:
    """The id of a new region with `values`: LanceDB's if it has one, otherwise `region_id`'s."""
    return lancedb_id(spec, values) or region_id(incarnation, spec.spec_id, values)


def is_lancedb_spec(spec: RegionSpec) -> bool:
    """Whether LanceDB can write tables with this spec: one field, and one that it knows."""
    if spec.spec_id != _LANCEDB_SPEC_ID or len(spec.fields) != 1:
        return False
    (field,) = spec.fields
    try:
        if field.transform == "identity":
            kind = type_of(field.result_type)
            return pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_text(kind)
        if field.transform == "bucket":
            return field.native and num_buckets_of(field) <= LANCE_BUCKETS
    except InvalidCallError:  # stored values are damaged; other checks say so
        return False
    return field.transform == "unsharded"


def lancedb_id(spec: RegionSpec, values: Mapping[str, RegionValue]) -> UUID | None:
    """The id that LanceDB derives for the region with `values`; None where it derives none.

    A UUID of version 5 of `unsharded`, `bucket-{number}`, or `identity-` and the value's bytes,
    little endian (LanceDB 0.40, `rust/lancedb/src/table/merge/lsm.rs`).
    """
    if not is_lancedb_spec(spec):
        return None
    (field,) = spec.fields
    value = values[field.field_id]
    if value is None:
        return None
    if field.transform == "identity":
        return _derived(b"identity-" + _value_bytes(field, value))
    return _derived(b"unsharded" if field.transform == "unsharded" else b"bucket-%d" % int(value))


def lancedb_values(spec: RegionSpec, region: UUID) -> dict[str, RegionValue] | None:
    """The values from which LanceDB derives the id `region`; None where it does not, and for
    `identity`, as any value may be one."""
    if not is_lancedb_spec(spec):
        return None
    (field,) = spec.fields
    if field.transform == "unsharded":
        return {field.field_id: 0} if region == lancedb_id(spec, {field.field_id: 0}) else None
    if field.transform != "bucket":
        return None
    bucket = _bucket_ids(num_buckets_of(field)).get(region)
    return None if bucket is None else {field.field_id: bucket}


@lru_cache(maxsize=16)
def _bucket_ids(num_buckets: int) -> Mapping[UUID, int]:
    return {_derived(b"bucket-%d" % bucket): bucket for bucket in range(num_buckets)}


@lru_cache(maxsize=1024)
def _derived(name: bytes) -> UUID:
    return UUID(
        bytes=hashlib.sha1(_LANCEDB.bytes + name, usedforsecurity=False).digest()[:16], version=5
    )


def _value_bytes(field: RegionField, value: RegionValue) -> bytes:
    if isinstance(value, bool):
        return b"\x01" if value else b"\x00"
    if isinstance(value, int):
        kind = type_of(field.result_type)
        signed = pa.types.is_signed_integer(kind)
        return value.to_bytes(kind.bit_width // 8, "little", signed=signed)
    return value if isinstance(value, bytes) else str(value).encode()


def _encoded(name: str, value: RegionValue) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, bool):
        return b"B1" if value else b"B0"
    if isinstance(value, int):
        return _sized(b"I", str(value).encode())
    if isinstance(value, str):
        return _sized(b"S", value.encode())
    if isinstance(value, bytes):
        return _sized(b"X", value)
    raise InvalidCallError(
        f"region value {name}={value!r} is a {type(value).__name__}; "
        "region values are None, bool, int, str or bytes"
    )


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack("<I", len(data)) + data
