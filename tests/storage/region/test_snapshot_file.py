"""Region snapshots as Lance files."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import lance
import pyarrow as pa

from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.snapshot_file import decode_regions, encode_regions
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec

SPECS = (
    RegionSpec(
        1,
        (
            RegionField("bucket", ("id",), expression="abs(col0) % 4", result_type="int32"),
            RegionField("day", ("d",), transform="identity", result_type="date32"),
        ),
    ),
    RegionSpec(2, (RegionField("name", ("n",), transform="identity", result_type="utf8"),)),
)


def region(number: int, **changes: object) -> RegionManifest:
    manifest = RegionManifest(
        UUID(int=number + 1),
        version=number + 1,
        writer_epoch=2**40 + number,
        replay_after_wal_entry_position=5,
        wal_entry_position_last_seen=6,
        current_generation=3,
        flushed_generations=(
            FlushedGeneration(1, "0123abcd_gen_1"),
            FlushedGeneration(2, "0123abcd_gen_2"),
        ),
    )
    return replace(manifest, **changes)


REGIONS = [
    region(0, region_spec_id=1, region_values={"bucket": 3, "day": 20_000}),
    region(1, region_spec_id=2, region_values={"name": "x"}),
    region(2, region_spec_id=2, region_values={"name": None}),
    region(3, region_spec_id=2),
    region(4, flushed_generations=()),
]


def test_regions_come_back_with_their_values() -> None:
    assert decode_regions(encode_regions(REGIONS, SPECS), SPECS) == REGIONS


def test_the_file_has_the_columns_of_the_specification(tmp_path) -> None:
    path = tmp_path / "index.lance"
    path.write_bytes(encode_regions(REGIONS, SPECS))
    table = lance.file.LanceFileReader(str(path)).read_all().to_table()
    assert table.schema.field("region_id").type == pa.binary(16)
    assert table.schema.field("writer_epoch").type == pa.uint64()
    assert table.schema.field("region_field_bucket").type == pa.int32()
    assert table["region_field_name"].to_pylist() == [None, "x", None, None, None]
    assert table["flushed_generations"][0].as_py()[1] == {
        "generation": 2,
        "path": "0123abcd_gen_2",
    }


def test_values_of_a_spec_that_is_not_known_are_not_known() -> None:
    """Protocol rule 1: a region without values is never pruned."""
    found = decode_regions(encode_regions(REGIONS, SPECS), SPECS[:1])
    assert [one.region_values is None for one in found] == [False, True, True, True, True]


def test_a_thousand_regions_are_one_small_file() -> None:
    regions = [
        region(i, region_spec_id=1, region_values={"bucket": i, "day": i}) for i in range(1000)
    ]
    data = encode_regions(regions, SPECS)
    assert len(data) < 100_000
    assert decode_regions(data, SPECS) == regions
