"""File names and paths of the layout (specification 1, "WAL Storage Layout")."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from memwal_sql.storage import paths
from memwal_sql.storage.paths import parse_reversed_name, reversed_name
from tests.each import each

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")


def test_names_are_the_bits_lowest_first() -> None:
    assert reversed_name(5) == "101" + "0" * 61


@given(st.integers(0, 2**64 - 1))
def test_names_come_back_as_their_numbers(number: int) -> None:
    assert parse_reversed_name(reversed_name(number)) == number


@each("name", ["", "1", "2" + "0" * 63, "0" * 65, ".tmp-" + "0" * 59])
def test_other_names_are_no_numbers(name: str) -> None:
    assert parse_reversed_name(name) is None


def test_the_layout() -> None:
    folder = f"_mem_wal/{REGION}"
    assert paths.wal_path(REGION, 1) == f"{folder}/wal/{'1' + '0' * 63}.arrow"
    assert paths.manifest_path(REGION, 1) == f"{folder}/manifest/{'1' + '0' * 63}.binpb"
    assert paths.numbered(paths.wal_path(REGION, 77), ".arrow") == 77
    assert paths.numbered(paths.version_hint_path(REGION), ".binpb") is None
    assert paths.generation_uri("s3://b/t/", REGION, "0123abcd_gen_1") == (
        f"s3://b/t/{folder}/0123abcd_gen_1"
    )
    assert paths.base_manifest_path(1) == "_versions/18446744073709551614.manifest"


@each("name", ["../x_gen_1", "0123abcd_gen_0", "0123ABCD_gen_1", "0123abcd_gen_1/..", "a_gen_1"])
def test_a_generation_never_leaves_its_region(name: str) -> None:
    assert paths.parse_generation_name(name) is None
    assert paths.parse_generation_name("0123abcd_gen_12") == 12
