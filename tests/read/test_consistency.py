"""What readers may see, and when: protocol rules 14 to 16, and the three consistency levels."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from memwal_sql.read.region_probe import RegionProbe
from memwal_sql.state import open_writers as live
from memwal_sql.write.region_writer import RegionWriter
from tests.model import merging
from tests.model.opened import opened_over
from tests.model.pairs import SCHEMA, keys, read, rows
from tests.model.process import as_another_process, forks
from tests.model.writing import flush_rows, session_of
from tests.read.consistency_child import write_counters
from tests.write.hooked_store import Call, HookedStore, passing


@pytest.fixture
def table(uri: str) -> Any:
    """Rows 0 to 9 in the base table, one region."""
    lance.write_dataset(rows(*((i, 0) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")


# Rule 15: strong


def test_strong_reads_see_rows_of_another_process_as_soon_as_they_are_acknowledged(
    table: Any, uri: str
) -> None:
    """Protocol rule 15."""
    context = session_of("t", table, consistency="strong")
    processes = forks()
    ours, theirs = processes.Pipe()
    writer = processes.Process(target=write_counters, args=(uri, 40, theirs))
    writer.start()
    theirs.close()
    try:
        for _ in range(40):
            number = ours.recv()
            assert read(table)[5] == number
            assert table.get([5])["n"].to_pylist() == [number]
            found = context.sql("SELECT n FROM t WHERE id = 5").to_arrow_table()
            assert found["n"].to_pylist() == [number]
            ours.send("go on")
    finally:
        ours.close()
        writer.join()
    assert writer.exitcode == 0


def test_strong_reads_see_this_process_s_buffered_rows_and_others_do_not(
    table: Any, uri: str
) -> None:
    with table.writer(durable=False, wal_flush_interval_s=60.0) as writer:
        writer.upsert(rows((1, 7), (50, 8)))
        writer.delete(keys(2))
        found = read(table)
        assert found[1] == 7 and found[50] == 8 and 2 not in found
        assert read(mw.open_table(uri)) == found
        assert read(table, "manifest")[1] == 0
        with as_another_process():
            assert read(mw.open_table(uri))[1] == 0
    with as_another_process():
        assert read(mw.open_table(uri)) == found


@pytest.mark.parametrize(("kind", "step"), [(RegionWriter, "tail"), (RegionProbe, "latest")])
def test_flushes_between_the_steps_of_a_read_mix_no_states(
    table: Any, monkeypatch: pytest.MonkeyPatch, kind: type, step: str
) -> None:
    """Protocol rule 15: MemTables are taken before the manifest is read, and those that it has
    flushed are let go of, however old their rows are by then."""
    take: Any = getattr(kind, step)
    states = [{5: 1, 50: None}, {5: 2, 50: 2}]
    with table.writer() as writer:
        writer.upsert(rows((5, 1)))

        def then_flushed(self: Any, *known: int) -> Any:
            taken = take(self, *known)
            monkeypatch.setattr(kind, step, take)  # once
            writer.flush()
            writer.upsert(rows((5, 2), (50, 2)))
            writer.flush()
            return taken

        monkeypatch.setattr(kind, step, then_flushed)
        found = read(table)
        assert getattr(kind, step) is take
    assert {key: found.get(key) for key in (5, 50)} in states


def test_buffered_rows_are_not_read_once_another_process_has_taken_over(
    table: Any, uri: str
) -> None:
    """Protocol rule 15: this process's own writer does not know yet that it was fenced."""
    first = table.writer(durable=False, wal_flush_interval_s=60.0)
    first.upsert(rows((1, 7)))
    assert read(table)[1] == 7
    with patch.object(live, "register", lambda uri, writer: None):
        second = mw.open_table(uri).writer()
        second.upsert(rows((3, 33)))
    expected = {**dict.fromkeys(range(10), 0), 3: 33}
    assert read(table) == expected
    assert table.get([1, 3])["n"].to_pylist() == [0, 33]
    with suppress(MemWalError):
        first.close()
    second.close()
    assert read(table) == expected


def test_a_region_that_appears_is_seen_by_the_next_strong_read(tmp_path: Path) -> None:
    """Protocol rule 15: every strong read looks for new regions."""
    uri = str(tmp_path / "table")
    mw.create_table(uri, SCHEMA, primary_key="id", regions=[mw.identity("id")])
    reader = mw.open_table(uri)
    with mw.open_table(uri).writer() as writer:
        for key in range(4):
            writer.upsert(rows((key, key)))
            with as_another_process():
                assert read(reader) == {k: k for k in range(key + 1)}
                assert reader.get([key])["n"].to_pylist() == [key]


def test_regions_of_a_table_that_was_made_again_are_not_read(tmp_path: Path) -> None:
    """It is noticed even if that happens between the look for a newer version and theirs."""
    place = tmp_path / "t"
    mw.create_table(place, SCHEMA, "id")
    reader = opened_over(str(place), HookedStore)

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "list_folders":
            reader.context.store.hook = passing
            shutil.rmtree(place)
            with mw.create_table(place, SCHEMA, "id").writer() as writer:
                writer.upsert(rows((1, 1)))
        return call()

    reader.context.store.hook = hook
    with pytest.raises(mw.ReopenError):
        reader.count_rows()
    assert reader.context.store.hook is passing


# Rule 16: caches


def test_a_base_version_number_used_again_for_other_rows_is_not_read_from_a_cache(
    table: Any, uri: str
) -> None:
    """Protocol rule 16: caches are keyed by the manifest's e-tag, not by its version."""
    flush_rows(table, rows((1, 7), (100, 9)))
    assert read(table)[1] == 7
    saved = Path(uri + ".saved")
    shutil.copytree(uri, saved)
    lance.write_dataset(rows((100, 1)), uri, mode="append")
    assert read(table)[100] == 9  # the generation makes the base table's last row stale
    # The folder goes back to an older state, and the same version is written again, otherwise.
    shutil.rmtree(uri)
    shutil.move(saved, uri)
    assert read(table)[100] == 9
    lance.write_dataset(rows((200, 2)), uri, mode="append")
    for handle in (table, mw.open_table(uri)):
        found = read(handle)
        assert found[200] == 2 and found[100] == 9 and found[1] == 7
        assert handle.get([100, 200])["n"].to_pylist() == [9, 2]


def test_what_a_handle_keeps_of_other_rows_under_the_same_version_number_serves_no_other_handle(
    table: Any, uri: str
) -> None:
    """Protocol rule 16: the handle that read them has not noticed yet, and lets go of nothing."""
    flush_rows(table, rows((1, 7), (100, 9)))
    saved = Path(uri + ".saved")
    shutil.copytree(uri, saved)
    lance.write_dataset(rows((100, 1), (101, 1)), uri, mode="append")
    assert read(table) == {**dict.fromkeys(range(10), 0), 1: 7, 100: 9, 101: 1}
    assert table.get([100, 101])["n"].to_pylist() == [9, 1]
    shutil.rmtree(uri)
    shutil.move(saved, uri)
    lance.write_dataset(rows((200, 2), (100, 2)), uri, mode="append")
    other = mw.open_table(uri)
    assert other.version == table.version
    expected = {**dict.fromkeys(range(10), 0), 1: 7, 100: 9, 200: 2}
    assert read(other) == expected
    assert other.get([100, 101, 200])["n"].to_pylist() == [9, 2]
    table.refresh()
    assert read(table) == expected


# Eventual and manifest


@pytest.mark.parametrize("consistency", ["manifest", "eventual"])
def test_weaker_reads_show_an_earlier_state_and_no_mixture(
    table: Any, uri: str, consistency: str
) -> None:
    """Every batch writes one number to a pair of keys: a mixture would show two."""
    pairs = ((1, 2), (3, 4))
    states = [read(table)]
    rng = Random(3)
    with table.writer(memtable_rows=6) as writer:
        for number in range(1, 40):
            a, b = pairs[number % 2]
            writer.upsert(rows((a, number), (b, number)))
            states.append({**states[-1], a: number, b: number})
            if rng.random() < 0.2:
                writer.flush()
            if rng.random() < 0.3:
                (region_id,) = merging.manifests(uri)
                merging.merge_one(uri, region_id, ["id"])
            found = read(table, consistency)
            assert found in states


def test_weaker_reads_never_go_back(table: Any) -> None:
    seen = 0
    with table.writer(memtable_rows=5) as writer:
        for number in range(1, 60):
            writer.upsert(rows((1, number), (2, number)))
            found = read(table, "manifest")
            assert found[1] == found[2] >= seen
            seen = found[1]
        writer.flush()
        assert read(table, "manifest")[1] == 59
