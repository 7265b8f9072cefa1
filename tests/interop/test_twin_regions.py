"""Two regions with the same values, as LanceDB makes one in a table of version 0.1 of this package:
refused by everybody, and repaired without losing a row."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from memwal_sql.bulk import region_repair
from memwal_sql.bulk.publish_region import RegionPublisher
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import RegionStatus
from memwal_sql.write import region_opener
from planner.regions.ids import region_id
from tests.cli.calls import as_json, call, failing
from tests.interop.lancedb_client import (
    UNSHARDED_ID,
    Handle,
    Rows,
    by_key,
    create,
    folder,
    made_by_us,
    open_handle,
    rows,
)
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.writing import flush_rows, session_of, upsert_rows
from tests.write.hooked_store import Call, Crash, Hook, HookedStore


def read(table: Any) -> Rows:
    return by_key(table.scan().read_all())


class Twins:
    """A table with a region of ours and one of LanceDB's.

    Both have key 2, and in both it differs; of key 3 they agree.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.table = made_by_us(path, mw.unsharded())
        with monkeypatch.context() as patch:
            patch.setattr(
                region_opener,
                "new_region_id",
                lambda incarnation, spec, values: region_id(incarnation, spec.spec_id, values),
            )
            with self.table.writer() as writer:
                writer.upsert(rows({0: "base", 1: "ours", 2: "base"}))
                writer.flush()
                self.table.merge()
                writer.upsert(rows({1: "ours", 2: "ours", 3: "both"}))
                writer.flush()
                writer.delete([0])
        (self.ours,) = manifests(self.table.uri)
        self.handle: Handle = open_handle(path)
        self.before = mw.open_table(self.table.uri)
        assert self.before.get([2]).num_rows == 1 and len(read(self.before)) == 3

    def written_by_lancedb(self) -> None:
        self.handle.upsert({2: "theirs", 3: "both", 4: "theirs"})

    def set_aside(self, repair: Any, uri: str | None = None) -> list[dict[str, Any]]:
        store = open_store(uri or self.table.uri)
        files = [pa.ipc.open_file(io.BytesIO(store.get(path))) for path in repair.files]
        return [row for file in files for row in file.read_all().to_pylist()]


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    made = Twins(tmp_path, monkeypatch)
    made.written_by_lancedb()
    assert set(manifests(made.table.uri)) == {made.ours, UNSHARDED_ID}
    yield made


def test_readers_writers_and_mergers_refuse_them_also_on_open_handles(twins: Twins) -> None:
    def sql(table: Any, consistency: str) -> Any:
        session = session_of("t", table, consistency=consistency)
        with mw.memwal_errors():
            return session.sql("SELECT count(*) FROM t").collect()

    def write(table: Any) -> None:
        upsert_rows(table, rows({9: "x"}))

    for table in (twins.before, mw.open_table(twins.table.uri)):
        for ask in (
            read,
            lambda t: t.get([2]),
            lambda t: t.get([2, 3]),
            lambda t: t.scan(filter="id = 2").read_all(),
            lambda t: t.pin(),
            lambda t: t.checkpoint("c"),
            lambda t: sql(t, "strong"),
            lambda t: sql(t, "manifest"),
            write,
            lambda t: t.merge(),
        ):
            with pytest.raises(mw.RepairError, match=r"two regions.*memwal repair") as caught:
                ask(table)
            assert str(twins.ours) in str(caught.value) and str(UNSHARDED_ID) in str(caught.value)
    # What tells the state of the table goes on, and nothing was claimed or changed.
    assert table.regions().num_rows == 2 and table.changes().read_all().num_rows == 10
    report = table.check()
    assert not report.ok and "memwal repair" in str(report)
    assert manifests(table.uri)[UNSHARDED_ID].writer_epoch == 1


@pytest.mark.parametrize("how", ["manifest", "strong", "one key", "keys"])
def test_the_first_query_that_finds_rows_of_a_region_without_values_refuses_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 11: until then nothing tells that it has the values of another one."""
    handle = create(tmp_path, LsmWriteSpec.identity("id"))
    handle.upsert({1: "theirs"})
    handle.close()
    table = mw.open_table(folder(tmp_path))
    table.merge()
    for _ in range(2):
        table.collect_garbage(older_than=timedelta(0), versions_older_than=timedelta(0))
    with monkeypatch.context() as patch:
        patch.setattr(RegionRegistry, "manifest_of", lambda *_: None)
        patch.setattr(
            region_opener,
            "new_region_id",
            lambda incarnation, spec, values: region_id(incarnation, spec.spec_id, values),
        )
        upsert_rows(table, rows({1: "ours"}))
    asks: dict[str, Callable[[], Any]] = {
        "manifest": lambda: reader.scan(consistency="manifest").read_all(),
        "strong": lambda: reader.scan().read_all(),
        "one key": lambda: reader.get([1]),
        "keys": lambda: reader.get([1, 2]),
    }
    reader = mw.open_table(table.uri)
    assert asks[how]().num_rows == 1
    handle.upsert({1: "theirs again"})
    if how == "manifest":
        handle.close()
    for _ in range(2):
        with pytest.raises(mw.RepairError, match="two regions"):
            asks[how]()


def test_an_eventual_reader_refuses_a_record_of_both(twins: Twins) -> None:
    twins.handle.close()
    table = mw.open_table(twins.table.uri)
    version = table.snapshot_regions()
    with pytest.raises(mw.RepairError, match="two regions"):
        table.scan(consistency="eventual").read_all()
    pinned = mw.open_table(table.uri, version=version)
    with pytest.raises(mw.RepairError, match="two regions"):
        read(pinned)


def test_a_repair_asks_whose_rows_are_newer_before_it_moves_one(twins: Twins) -> None:
    table = mw.open_table(twins.table.uri)
    with pytest.raises(mw.RepairError, match=r"1 keys have different rows.*'ours'|'theirs'") as e:
        table.repair_regions()
    assert "newer=" in str(e.value)
    with pytest.raises(mw.RepairError, match="1 keys have different rows"):
        table.repair_regions(newer="6433efc6-ea99-4fb5-9138-e4f3486995b4")
    with pytest.raises(mw.InvalidCallError, match="no region's id"):
        table.repair_regions(newer="ours")
    assert {one.status for one in manifests(table.uri).values()} == {RegionStatus.ACTIVE}
    with pytest.raises(mw.RepairError, match="two regions"):
        read(table)


@pytest.mark.parametrize("winner", ["ours", "theirs"])
@pytest.mark.parametrize("many", [False, True])
def test_a_repair_keeps_every_row_and_both_programs_go_on(
    twins: Twins, winner: str, many: bool, within: Any
) -> None:
    if many:
        within(region_repair.RepairParts.set(keys=1))
    table = twins.before
    newer = twins.ours if winner == "ours" else UNSHARDED_ID
    (repair,) = table.repair_regions(newer=newer)
    assert (repair.kept, repair.sealed, repair.set_aside) == (UNSHARDED_ID, twins.ours, 1)
    assert repair.moved == (4 if winner == "ours" else 2)
    loser = "theirs" if winner == "ours" else "ours"
    lost = twins.ours if winner == "theirs" else UNSHARDED_ID
    assert twins.set_aside(repair) == [
        {"id": 2, "v": loser, "_deleted": False, "_region": str(lost)}
    ]
    expected = {1: "ours", 2: winner, 3: "both", 4: "theirs"}
    for reader in (table, twins.table, mw.open_table(table.uri)):
        assert read(reader) == expected == by_key(reader.get([0, 1, 2, 3, 4, 5]))
        eventual = reader.scan(consistency="eventual").read_all()
        assert by_key(eventual) == expected
    assert twins.table.check().ok and table.repair_regions() == []
    with pytest.raises(RuntimeError, match="fenced"):
        twins.handle.close()
    assert open_handle(twins.path).read() == expected
    twins.handle.upsert({5: "theirs"})
    expected[5] = "theirs"
    assert read(table) == expected == twins.handle.read()
    flush_rows(table, rows({6: "ours"}))
    expected[6] = "ours"
    table.merge()
    table.build_indexes()
    assert read(mw.open_table(table.uri)) == expected == open_handle(twins.path).read()
    assert manifests(table.uri)[twins.ours].status is RegionStatus.SEALED


@pytest.mark.parametrize("winner", ["ours", "theirs"])
def test_merged_rows_of_the_region_that_stays_are_not_replaced_unasked(
    tmp_path: Path, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path, monkeypatch)
    table = mw.open_table(twins.table.uri)
    table.merge()  # and with it the delete of key 0
    twins.handle.upsert({0: "theirs", 2: "theirs", 3: "both"})
    monkeypatch.setattr(region_repair, "lancedb_id", lambda *_: twins.ours)  # which stays
    with pytest.raises(mw.RepairError, match=r"2 keys have different rows.*'_deleted': True"):
        table.repair_regions()
    newer = twins.ours if winner == "ours" else UNSHARDED_ID
    (repair,) = table.repair_regions(newer=newer)
    assert (repair.kept, repair.set_aside) == (twins.ours, 2)
    merged = {1: "ours", 2: "ours", 3: "both"}
    expected = merged if winner == "ours" else {**merged, 0: "theirs", 2: "theirs"}
    assert read(table) == expected == by_key(table.get([0, 1, 2, 3]))
    lost = {row["id"]: (row["v"], row["_deleted"]) for row in twins.set_aside(repair)}
    if winner == "ours":
        assert lost == {0: ("theirs", False), 2: ("theirs", False)}
    else:
        assert lost == {0: (None, True), 2: ("ours", False)}
    table.merge()
    assert read(table) == expected and table.check().ok


@pytest.mark.parametrize("step", ["publish_claimed", "seal", "_record", "_mark", "_index"])
def test_a_repair_that_dies_anywhere_is_done_by_the_next(
    twins: Twins, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mw.open_table(twins.table.uri)
    place = RegionPublisher if step in ("publish_claimed", "seal") else None

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if place is not None:
            patch.setattr(place, step, die)
        elif step == "_mark":
            patch.setattr(region_repair.RegionRepairer, step, die)
        else:
            name = {"_record": "snapshot_regions", "_index": "build_indexes"}[step]
            patch.setattr(table, name, die)
        with pytest.raises(KeyboardInterrupt):
            table.repair_regions(newer=twins.ours)
    again = mw.open_table(table.uri)
    if step != "_index":
        with pytest.raises(mw.RepairError, match="two regions"):
            read(again)
        assert len(again.repair_regions(newer=twins.ours)) == 1
    assert read(again) == {1: "ours", 2: "ours", 3: "both", 4: "theirs"}
    assert again.check().ok


def crash_at_change(nth: int, when: str) -> Hook:
    """Crash before or after the `nth` change of the store."""
    changes = {"put", "put_if_absent", "delete", "delete_in_bulk", "move"}
    count, gone = 0, False

    def hook(operation: str, path: str, call: Call) -> Any:
        nonlocal count, gone
        due = not gone and operation in changes and (count := count + 1) == nth
        if gone or (due and when == "before"):
            gone = True
            raise Crash
        result = call()
        if due:
            gone = True
            raise Crash
        return result

    return hook


@pytest.mark.parametrize("winner", ["ours", None])
def test_rows_written_after_a_repair_that_died_are_replaced_by_none_of_before(
    tmp_path: Path, winner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it dies: what the sealed region had is older than what the other one has by then."""
    made = Twins(tmp_path / "made", monkeypatch)
    made.handle.upsert({3: "both", 4: "theirs"} if winner is None else {2: "t", 3: "t", 4: "t"})
    made.handle.close()
    newer = None if winner is None else made.ours
    before = {1: "ours", 2: "ours", 3: "both", 4: "theirs" if winner is None else "t"}
    sealed = 0
    for nth in count(1):
        path = tmp_path / str(nth)
        shutil.copytree(made.path, path)
        uri = folder(path)
        dying = opened_over(
            uri, lambda store, n=nth: HookedStore(store, crash_at_change(n, "after"))
        )
        try:
            dying.repair_regions(newer=newer)
            break
        except Crash:
            pass
        over = manifests(uri)[made.ours].status is RegionStatus.SEALED
        sealed += over
        late = open_handle(path)
        late.upsert({2: "late", 5: "late"})
        late.close()
        table = mw.open_table(uri)
        agreed = winner is not None or over
        if not agreed:
            with pytest.raises(mw.RepairError, match="different rows"):
                table.repair_regions()
        given = newer if agreed else UNSHARDED_ID
        repairs = table.repair_regions(newer=given)
        expected = before | {2: "late", 5: "late"}
        if winner is not None and not over:  # said again of a region that goes on: its rows count
            expected[2] = "ours"
            assert {"id": 2, "v": "late", "_deleted": False, "_region": str(UNSHARDED_ID)} in (
                made.set_aside(repairs[0], uri)
            )
        assert read(table) == read(mw.open_table(uri)) == expected, nth
        assert table.check().ok
    assert nth > 5 and sealed > 1


@pytest.mark.parametrize("newer_id", ["kept", "sealed"])
def test_the_region_that_a_repair_has_sealed_is_not_the_one_that_stays(
    twins: Twins, newer_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_repair, "lancedb_id", lambda *_: None)
    table = mw.open_table(twins.table.uri)
    with monkeypatch.context() as patch:
        patch.setattr(region_repair.RegionRepairer, "_mark", _die)
        with pytest.raises(KeyboardInterrupt):
            table.repair_regions(newer=UNSHARDED_ID)
    newer = UNSHARDED_ID if newer_id == "kept" else twins.ours
    (repair,) = mw.open_table(table.uri).repair_regions(newer=newer)
    assert (repair.kept, repair.sealed) == (UNSHARDED_ID, twins.ours)
    expected = {1: "ours", 2: "theirs", 3: "both", 4: "theirs"}
    assert read(mw.open_table(table.uri)) == expected


@pytest.mark.parametrize("winner", ["ours", "theirs"])
def test_merged_rows_of_the_other_region_are_not_hidden_unasked(
    tmp_path: Path, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(tmp_path, monkeypatch)
    table = mw.open_table(twins.table.uri)
    table.merge()
    twins.handle.upsert({1: "theirs", 3: "both", 4: "theirs"})
    with pytest.raises(mw.RepairError, match=r"1 keys have different rows"):
        table.repair_regions()
    (repair,) = table.repair_regions(newer=twins.ours if winner == "ours" else UNSHARDED_ID)
    assert (repair.kept, repair.set_aside) == (UNSHARDED_ID, 1)
    expected = {1: winner, 2: "ours", 3: "both", 4: "theirs"}
    assert read(table) == read(mw.open_table(table.uri)) == expected
    loser = "theirs" if winner == "ours" else "ours"
    assert [(row["id"], row["v"]) for row in twins.set_aside(repair)] == [(1, loser)]
    table.merge()
    assert read(table) == expected and table.check().ok


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_what_is_written_into_the_region_meanwhile_makes_the_repair_fail(
    twins: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mw.open_table(twins.table.uri)
    publish = RegionPublisher.publish_claimed

    def late(self: RegionPublisher, batch: Any) -> None:
        open_handle(twins.path).upsert({1: "meanwhile"})
        publish(self, batch)

    monkeypatch.setattr(RegionPublisher, "publish_claimed", late)
    with pytest.raises(mw.FencedError):
        table.repair_regions(newer=UNSHARDED_ID)
    monkeypatch.undo()
    table.repair_regions(newer=UNSHARDED_ID)
    assert read(table) == {1: "meanwhile", 2: "theirs", 3: "both", 4: "theirs"}


def test_the_command_repairs_and_says_what_it_did(twins: Twins) -> None:
    uri = twins.table.uri
    assert "--newer REGION" in failing("repair", uri, code=5)
    (repair,) = as_json("repair", uri, "--newer", twins.ours)["repairs"]
    assert (repair["kept"], repair["sealed"]) == (str(UNSHARDED_ID), str(twins.ours))
    assert (repair["moved"], repair["set_aside"], len(repair["files"])) == (4, 1, 1)
    assert "nothing to repair" in call("repair", uri)
