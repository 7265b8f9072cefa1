"""Region snapshots as Lance files."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import CorruptFileError
from memwal_sql.storage.base.memwal_index import INDEX_NAME
from memwal_sql.storage.proto_gen.mem_wal_pb2 import MemWalIndexDetails
from memwal_sql.storage.region import snapshot_file
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.snapshot_file import decode_regions, encode_regions
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from tests.model.lance_manifest import rewrite_indexes
from tests.model.process import as_another_process
from tests.model.small_rows import make_rows, texts_of
from tests.model.writing import flush_rows, upsert_rows

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


def test_a_damaged_byte_is_refused_before_lance_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some end the process there."""
    data = encode_regions(REGIONS, SPECS)
    mark = data.index(b"MWcr")
    expected = decode_regions(data, SPECS)
    read: list[bytes] = []
    monkeypatch.setattr(snapshot_file, "_read", lambda damaged: read.append(damaged) or 1 / 0)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptFileError):
            decode_regions(bytes(damaged), SPECS)
        if mark <= place < mark + 4:  # then it is taken for a file without a checksum
            read.pop()
        assert read == [], place
    monkeypatch.undo()
    unsealed = data[:mark] + data[mark + 8 :]
    of_another = data[:mark] + b"mwcr" + data[mark + 4 :]
    for whole in (unsealed, of_another):
        assert decode_regions(whole, SPECS) == expected


def test_a_table_with_a_damaged_record_is_read_and_heals(tmp_path) -> None:
    """The record of an older version is damaged: no job and no read comes to it but as an error."""
    table = mw.create_table(tmp_path / "t", make_rows().schema, "id")
    upsert_rows(table, make_rows(1))
    table.snapshot_regions()
    (newest, *_) = sorted((tmp_path / "t" / "_versions").glob("*.manifest"))
    table.close()

    def flip(section: Any) -> None:
        (index,) = [one for one in section.indices if one.name == INDEX_NAME]
        details = MemWalIndexDetails.FromString(index.index_details.value)
        record = bytearray(details.inline_snapshots)
        record[5] ^= 1
        details.inline_snapshots = bytes(record)
        index.index_details.value = details.SerializeToString()

    rewrite_indexes(newest, flip)
    with as_another_process():
        table = mw.open_table(tmp_path / "t")
        assert texts_of(table) == {1: "x"}
        with pytest.raises(CorruptFileError, match="snapshot_regions"):
            texts_of(table, consistency="eventual")
        assert "checksum" in str(table.check())
        flush_rows(table, make_rows(2))
        table.snapshot_regions()
        assert texts_of(table, consistency="eventual").keys() == {1, 2}
        assert "checksum" in str(table.check())  # of the older version
        with pytest.raises(CorruptFileError, match="let Lance clean up"):
            table.collect_garbage()  # it may name generations that are needed
        lance.dataset(table.uri).cleanup_old_versions(timedelta(0))
        table.collect_garbage()
        assert "checksum" not in str(table.check())
