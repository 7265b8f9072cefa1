"""Region ids follow from incarnation, spec and values, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memwal_sql as mw
from exec_nodes.base.errors import InvalidCallError
from planner.regions.field import RegionField
from planner.regions.ids import canonical, lancedb_values, new_region_id, region_id
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue
from tests.each import each

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


BUCKETS = mw.lance_bucket("id", 1024, name="b")


def identity(kind: str) -> RegionField:
    return replace(mw.identity("v"), result_type=kind)


@each(
    "field, value, expected",
    [
        (mw.unsharded("u"), 0, "aa48498d-ac91-59e2-8452-69f46010ace2"),
        (BUCKETS, 0, "4a388480-a25b-59a8-b058-24217f980256"),
        (BUCKETS, 3, "1d8d46d4-1ffd-5f6e-9aea-466d5ea76fdb"),
        (identity("int64"), 2, "fefdf5a7-a64d-5ab3-a467-8d7af9108eb6"),
        (identity("int64"), 100, "a6a3e299-4ff6-5eea-9101-f164202b72a9"),
    ],
)
def test_lancedb_s_ids_never_change(field: RegionField, value: RegionValue, expected: str) -> None:
    """Taken from folders that LanceDB 0.40 has made; `tests/interop` compares all types."""
    spec = RegionSpec(1, (field,))
    values = {field.field_id: value}
    assert new_region_id(A, spec, values) == UUID(expected)
    known = None if field.transform == "identity" else values
    assert lancedb_values(spec, UUID(expected)) == known


@each(
    "spec",
    [
        RegionSpec(1, (mw.bucket("id", 4, name="b"),)),
        RegionSpec(1, (replace(BUCKETS, parameters={"num_buckets": "1025"}),)),
        RegionSpec(1, (replace(BUCKETS, parameters={}),)),
        RegionSpec(2, (BUCKETS,)),
        RegionSpec(1, (BUCKETS, mw.identity("x"))),
        RegionSpec(1, (mw.year("d", name="b"),)),
        RegionSpec(1, (replace(identity("date32"), field_id="b"),)),
        RegionSpec(1, (replace(identity("nonsense"), field_id="b"),)),
    ],
)
def test_where_lancedb_derives_no_id_ours_is_taken(spec: RegionSpec) -> None:
    values: dict[str, RegionValue] = dict.fromkeys(spec.field_ids, 1)
    assert new_region_id(A, spec, values) == region_id(A, spec.spec_id, values)
    assert lancedb_values(spec, UUID("4a388480-a25b-59a8-b058-24217f980256")) is None


def test_no_region_of_lancedb_s_has_the_value_null() -> None:
    spec = RegionSpec(1, (identity("int64"),))
    assert new_region_id(A, spec, {"v": None}) == region_id(A, 1, {"v": None})


def test_an_id_that_lancedb_does_not_derive_says_no_values() -> None:
    for field in (mw.unsharded("u"), BUCKETS):
        assert lancedb_values(RegionSpec(1, (field,)), UUID(int=7, version=5)) is None


def test_other_values_are_refused() -> None:
    with pytest.raises(InvalidCallError, match=r"x=1\.5"):
        canonical({"x": 1.5})  # type: ignore[dict-item]
