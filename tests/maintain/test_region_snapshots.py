"""The record of region states in the MemWAL index, and readers that plan from it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain import details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.wal.log import Wal
from tests.model.merging import details_of, manifests, merge_one
from tests.model.process import Process
from tests.model.writing import flush_rows, upsert_rows
from tests.planner.predicates.said import Said

SCHEMA = pa.schema([("id", pa.int64()), ("val", pa.int64())])


def _table(folder: Path, regions: int, rows: int) -> mw.Table:
    table = mw.create_table(folder / "t", SCHEMA, "id", regions=[mw.bucket("id", regions)])
    flush_rows(table, {"id": list(range(rows)), "val": [0] * rows}, durable=False)
    return table


def _ids(table: mw.Table, consistency: str) -> list[int]:
    return sorted(table.scan(["id"], consistency=consistency).read_all()["id"].to_pylist())


def test_eventual_readers_see_the_recorded_state_until_it_is_recorded_again(tmp_path: Path) -> None:
    table = _table(tmp_path, regions=3, rows=20)
    table.snapshot_regions()
    flush_rows(table, {"id": [100], "val": [1]})
    reader = mw.open_table(table.uri)
    assert _ids(reader, "eventual") == list(range(20))
    assert _ids(reader, "manifest") == [*range(20), 100]
    table.snapshot_regions()
    assert _ids(reader, "eventual") == [*range(20), 100]


def test_more_than_a_hundred_regions_are_in_a_file_that_readers_may_miss(
    tmp_path: Path,
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions=[mw.identity("id")])
    upsert_rows(table, {"id": list(range(101)), "val": [0] * 101}, durable=False)
    table.snapshot_regions()
    details = details_of(table.uri)
    assert (details.num_regions, details.inline_snapshots) == (101, None)
    assert len(mw.open_table(table.uri).snapshot("eventual").regions) == 101
    shutil.rmtree(tmp_path / "t" / "_indices" / str(details.index_uuid))
    # Protocol rule 23: they take the manifests.
    assert len(mw.open_table(table.uri).snapshot("eventual").regions) == 101


def test_recording_keeps_merge_progress_that_came_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 19: Lance accepts a commit of the index details over a newer one."""
    table = _table(tmp_path, regions=1, rows=5)
    (region,) = manifests(table.uri)
    latest = details.latest_dataset

    def overtaken(context: Any) -> Any:
        dataset = latest(context)
        monkeypatch.undo()
        assert merge_one(table.uri, region, ["id"]) == 1
        return dataset  # the version before the merge

    monkeypatch.setattr(details, "latest_dataset", overtaken)
    table.snapshot_regions()
    found = details_of(table.uri)
    assert found.merged_generations[region] == 1
    assert found.num_regions == 1


def test_a_query_for_one_region_looks_it_up_and_finds_the_same(tmp_path: Path) -> None:
    table = _table(tmp_path, regions=7, rows=60)
    table.snapshot_regions()
    reader = mw.open_table(table.uri)
    for condition in ("id = 11", "id IN (1, 2, 3)", "id = 1 AND val = 0", "id > 50", "id = 999"):
        found = reader.scan(["id"], filter=condition, consistency="eventual").read_all()
        expected = reader.scan(["id"], filter=condition, consistency="manifest").read_all()
        assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())
        filters = Said(reader.schema)(condition)
        eventual = reader.snapshot("eventual", filters)
        manifest = reader.snapshot("manifest", filters)
        assert [r.region_id for r in eventual.regions] == [r.region_id for r in manifest.regions]
        assert eventual.regions_pruned == manifest.regions_pruned


def test_the_last_log_position_is_noted_in_the_manifests(tmp_path: Path) -> None:
    """Specification 2, "MemWAL Index Builder": a hint that writers don't keep up to date."""
    table = _table(tmp_path, regions=1, rows=5)
    (region,) = manifests(table.uri)
    flushed = manifests(table.uri)[region].replay_after_wal_entry_position
    writer = table.writer()
    for n in range(3):
        writer.upsert({"id": [n], "val": [n]})
    assert manifests(table.uri)[region].wal_entry_position_last_seen == flushed
    table.snapshot_regions()
    noted = manifests(table.uri)[region]
    assert noted.wal_entry_position_last_seen == flushed + 4  # the fence of the claim comes first
    table.snapshot_regions()
    assert manifests(table.uri)[region].version == noted.version
    writer.upsert({"id": [7], "val": [7]})
    writer.flush()  # the writer goes on over the manifest that was changed beside it
    writer.close()
    assert table.get([7, 1]).num_rows == 2


def test_a_torn_entry_is_never_noted_as_complete(tmp_path: Path) -> None:
    """Protocol rule 9: all up to the hint counts as complete, so the next claim would fail."""
    table = _table(tmp_path, regions=1, rows=5)
    (region,) = manifests(table.uri)
    process = Process(table.uri)
    process.table.writer().upsert({"id": [7], "val": [7]})
    process.kill()
    wal = Wal(open_store(table.uri), region)
    last = wal.positions()[-1]
    whole = (Path(table.uri) / wal.path(last)).read_bytes()
    (Path(table.uri) / wal.path(last + 1)).write_bytes(whole[: len(whole) // 2])
    table.snapshot_regions()
    assert manifests(table.uri)[region].wal_entry_position_last_seen == last
    upsert_rows(mw.open_table(table.uri), {"id": [8], "val": [8]})
    assert _ids(mw.open_table(table.uri), "strong") == [*range(5), 7, 8]
