"""How plans and messages call a region."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from planner.regions.values import RegionValue


def region_name(region_id: UUID, values: Mapping[str, RegionValue] | None) -> str:
    """`carrier=UA,origin_bucket=3` from the region's values in field order; the first eight hex
    digits of its id when it has none."""
    if not values:
        return region_id.hex[:8]
    return ",".join(f"{field_id}={_text(value)}" for field_id, value in values.items())


def _text(value: RegionValue) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
