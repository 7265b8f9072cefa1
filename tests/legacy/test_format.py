"""MemWAL indexes of the older format are recognised and decoded (specification 3)."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import CorruptFileError, UnsupportedError
from memwal_sql.legacy.format import OlderState, decode_older, read_older_index
from memwal_sql.storage.base.memwal_index import IndexDetails, encode_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.proto_gen import older_mem_wal_pb2 as pb
from tests.each import each
from tests.storage.older import entry_range, make_older, mem_wal, message


def _u16(base: int, *offsets: int) -> pb.EncodedIds:
    data = np.array(offsets, "<u2").tobytes()
    return pb.EncodedIds(u16_array=pb.Offsets(base=base, offsets=data))


def _u32(base: int, *offsets: int) -> pb.EncodedIds:
    data = np.array(offsets, "<u4").tobytes()
    return pb.EncodedIds(u32_array=pb.Offsets(base=base, offsets=data))


def _u64(*values: int) -> pb.EncodedIds:
    return pb.EncodedIds(u64_array=pb.Values(values=np.array(values, "<u8").tobytes()))


def test_a_list_is_decoded_by_region_and_generation() -> None:
    found = decode_older(
        message(
            [
                mem_wal("b", 1, "OPEN"),
                mem_wal("a", 2, "FLUSHED", entry_range(5, 3)),
                mem_wal("a", 1, "MERGED", entry_range(0, 5)),
            ]
        ),
        "p",
    )
    assert [(one.region, one.generation, one.state) for one in found] == [
        ("a", 1, OlderState.MERGED),
        ("a", 2, OlderState.FLUSHED),
        ("b", 1, OlderState.OPEN),
    ]
    assert [one.wal_ranges for one in found] == [((0, 4),), ((5, 7),), ()]
    assert [one.entries for one in found] == [5, 3, 0]
    assert [one.is_lost_without_its_wal for one in found] == [False, True, False]
    assert (found[0].owner_id, found[0].wal_location) == ("owner-of-a", "s3://logs/a")
    assert (found[0].mem_table_location, found[0].last_updated_dataset_version) == ("memory://a", 1)
    assert str(found[1]) == (
        "region 'a' generation 2 (flushed): WAL entries 5 to 7 at 's3://logs/a'"
    )


@each(
    "segment, ranges",
    [
        (pb.EntryIds(range=pb.IdRange(start=3, end=3)), ()),
        (
            pb.EntryIds(
                range_with_holes=pb.IdRangeWithHoles(start=2, end=9, holes=_u16(2, 1, 2, 6))
            ),
            ((2, 2), (5, 7)),
        ),
        (
            pb.EntryIds(
                range_with_bitmap=pb.IdRangeWithBitmap(start=8, end=18, bitmap=b"\x0d\x02")
            ),
            ((8, 8), (10, 11), (17, 17)),
        ),
        (pb.EntryIds(sorted_array=_u32(10, 0, 1, 70_000)), ((10, 11), (70_010, 70_010))),
        (pb.EntryIds(array=_u64(9, 2**40, 8)), ((8, 9), (2**40, 2**40))),
        (pb.EntryIds(array=pb.EncodedIds()), ()),
        # A few bytes that say that they are for more entries than fit into any memory.
        (
            pb.EntryIds(
                range_with_holes=pb.IdRangeWithHoles(start=0, end=2**62, holes=_u64(7, 2**70 >> 9))
            ),
            ((0, 6), (8, 2**61 - 1), (2**61 + 1, 2**62 - 1)),
        ),
    ],
)
def test_every_encoding_of_entry_ids(
    segment: pb.EntryIds, ranges: tuple[tuple[int, int], ...]
) -> None:
    (one,) = decode_older(message([mem_wal("r", 1, "OPEN", segment.SerializeToString())]), "p")
    assert one.wal_ranges == ranges


def test_details_of_today_are_no_older_list() -> None:
    today = encode_details(IndexDetails(snapshot_ts_millis=12345, num_regions=2))
    assert decode_older(today, "p") == []


def test_a_damaged_list_names_its_file() -> None:
    short = pb.EntryIds(range_with_bitmap=pb.IdRangeWithBitmap(start=0, end=99, bitmap=b"\x01"))
    huge = pb.EntryIds(range_with_bitmap=pb.IdRangeWithBitmap(start=0, end=2**62, bitmap=b"\x01"))
    for damaged in (
        message([mem_wal("r", 1, "OPEN", b"\xff\xff")]),
        message([mem_wal("r", 1, "OPEN", short.SerializeToString())]),
        message([mem_wal("r", 1, "OPEN", huge.SerializeToString())]),
        b"\x0a\xff",
    ):
        with pytest.raises(CorruptFileError, match=r"_versions/1\.manifest is not a list"):
            decode_older(damaged, "_versions/1.manifest")


def test_opening_a_table_of_the_older_format_names_the_upgrade(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    make_older(uri, pa.table({"id": [1]}), [mem_wal("r", 1, "OPEN")])
    for call in (mw.open_table, mw.enable):
        with pytest.raises(UnsupportedError, match=r"older format.*memwal upgrade"):
            call(uri)
    found = read_older_index(open_store(uri), lance.dataset(uri))
    assert found is not None and len(decode_older(found.message, uri)) == 1
