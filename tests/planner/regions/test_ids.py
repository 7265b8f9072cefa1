"""Region ids follow from incarnation, spec and values, and from nothing else."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exec_nodes.errors import InvalidCallError
from planner.regions.ids import canonical, region_id
from planner.regions.values import RegionValue

A, B = UUID(int=1), UUID(int=2)
SCALAR = st.none() | st.booleans() | st.integers() | st.text() | st.binary()
VALUES = st.dictionaries(st.text(), SCALAR, max_size=4)


@given(values=VALUES)
def test_two_creators_derive_one_id(values: dict[str, RegionValue]) -> None:
    """Protocol rule 11: whatever the order in which the fields are given."""
    turned = dict(reversed(values.items()))
    assert region_id(A, 1, values) == region_id(A, 1, turned)


@given(one=VALUES, other=VALUES)
def test_different_values_have_different_encodings(
    one: dict[str, RegionValue], other: dict[str, RegionValue]
) -> None:
    """Protocol rule 11; True and 1, "" and NULL, "a" and b"a" are different values."""
    typed = [{k: (type(v), v) for k, v in values.items()} for values in (one, other)]
    assert (canonical(one) == canonical(other)) == (typed[0] == typed[1])


def test_an_id_is_shaped_as_a_random_uuid() -> None:
    """Protocol rule 11: UUID version 4, variant 1."""
    made = region_id(A, 1, {"bucket": 3})
    assert made.version == 4 and made.variant == "specified in RFC 4122"


def test_an_id_depends_on_incarnation_and_spec() -> None:
    """Protocol rule 11: a table made again under the same path has other regions."""
    values: dict[str, RegionValue] = {"bucket": 3}
    ids = {region_id(A, 1, values), region_id(B, 1, values), region_id(A, 2, values)}
    assert len(ids) == 3


def test_ids_never_change_between_versions() -> None:
    """Protocol rule 11: an older creator makes the same region."""
    values: dict[str, RegionValue] = {"s": "é", "n": None, "i": -5, "x": b"\0", "t": True}
    assert region_id(A, 7, values) == UUID("4fbb3cb4-363f-4e91-af5e-d1a9862495b8")


def test_other_values_are_refused() -> None:
    with pytest.raises(InvalidCallError, match=r"x=1\.5"):
        canonical({"x": 1.5})  # type: ignore[dict-item]
