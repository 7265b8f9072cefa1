"""Region ids derived from region values, so that two creators make one region.

Protocol rule 11. Pure functions; whoever uses an id first checks that no listed region already
has these values.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from uuid import UUID

from exec_nodes.errors import InvalidCallError
from planner.regions.values import RegionValue

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
