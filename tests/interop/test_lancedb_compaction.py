"""A compaction changes nothing for LanceDB's writers and readers, nor theirs for ours."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from tests.interop.lancedb_client import by_key, create, folder, open_handle, rows


def _merged(table: mw.Table, number: int) -> dict[int, str]:
    """Merge rows that replace those of some fragments; what was written."""
    values = dict.fromkeys(range(number * 5, number * 5 + 20), f"ours {number}")
    with table.writer() as writer:
        writer.upsert(rows(values))
        writer.flush()
    table.merge()
    return values


def test_lancedb_writes_and_reads_beside_a_compaction(tmp_path: Path) -> None:
    create(tmp_path, LsmWriteSpec.unsharded(), dict.fromkeys(range(40), "base")).close()
    table = mw.open_table(folder(tmp_path))
    expected = dict.fromkeys(range(40), "base")
    for number in range(4):
        expected |= _merged(table, number)
    writer, reader = open_handle(tmp_path), open_handle(tmp_path)
    assert reader.read() == expected
    done = threading.Event()
    failures: list[BaseException] = []

    def compact() -> None:
        try:
            assert table.compact() >= 4
        except BaseException as error:
            failures.append(error)
        done.set()

    thread = threading.Thread(target=compact)
    thread.start()
    number = 0
    while not done.is_set() or number < 3:
        number += 1
        writer.upsert({7: f"theirs {number}", 100 + number: "new"})
        expected |= {7: f"theirs {number}", 100 + number: "new"}
        assert writer.read() == by_key(table.scan().read_all()) == expected
    thread.join()
    assert failures == []
    assert len(lance.dataset(table.uri).get_fragments()) == 1
    writer.upsert({8: "theirs"})
    writer.close()
    expected[8] = "theirs"
    assert reader.read() == open_handle(tmp_path).read() == expected
    assert table.merge() >= 1
    assert by_key(table.scan().read_all()) == open_handle(tmp_path).read() == expected


def test_lancedb_compacts_beside_us(tmp_path: Path) -> None:
    handle = create(tmp_path, LsmWriteSpec.unsharded(), dict.fromkeys(range(40), "base"))
    handle.close()
    table = mw.open_table(folder(tmp_path))
    expected = dict.fromkeys(range(40), "base")
    for number in range(4):
        expected |= _merged(table, number)
    open_handle(tmp_path).table.optimize()
    assert len(lance.dataset(table.uri).get_fragments()) == 1
    assert table.compact() == 0
    expected |= _merged(table, 4)
    assert by_key(table.scan().read_all()) == open_handle(tmp_path).read() == expected
    assert table.compact() == 2
    assert by_key(table.scan().read_all()) == open_handle(tmp_path).read() == expected
