"""Two regions with the same values, as LanceDB makes one where another program derives other ids:
refused by everybody, and copied into a new table without losing a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.write import region_opener
from planner.regions.ids import region_id
from tests.docs.pages import blocks
from tests.each import each
from tests.interop.lancedb_client import (
    UNSHARDED_ID,
    Handle,
    Rows,
    by_key,
    create_emptied,
    made_by_us,
    open_handle,
    rows,
)
from tests.model.merging import manifests
from tests.model.writing import session_of, upsert_rows


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
            with pytest.raises(mw.RepairError, match=r"two regions.*docs/lancedb.md") as caught:
                ask(table)
            assert str(twins.ours) in str(caught.value) and str(UNSHARDED_ID) in str(caught.value)
    # What tells the state of the table goes on, and nothing was claimed or changed.
    assert table.regions().num_rows == 2 and table.changes().read_all().num_rows == 10
    report = table.check()
    assert not report.ok and "docs/lancedb.md" in str(report)
    assert manifests(table.uri)[UNSHARDED_ID].writer_epoch == 1


@each("how", ["manifest", "strong", "one key", "keys"])
def test_the_first_query_that_finds_rows_of_a_region_without_values_refuses_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol rule 11: until then nothing tells that it has the values of another one."""
    handle, table = create_emptied(tmp_path, [1])
    with monkeypatch.context() as patch:
        patch.setattr(RegionRegistry, "manifests_of", lambda *a: [None] * len(a[-1]))
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


@pytest.mark.parametrize("winner", ["ours", "theirs"])
def test_the_way_out_of_the_manual_keeps_every_row(
    twins: Twins, winner: str, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"mw": mw, "shared": twins.before}
    (example,) = (one.text for one in blocks("docs/lancedb.md") if "def copy_rows" in one.text)
    exec(compile(example.partition("\n\n\nmended")[0], "example", "exec"), names)
    table = mw.open_table(twins.table.uri)
    newer, older = str(twins.ours), str(UNSHARDED_ID)
    if winner == "theirs":
        newer, older = older, newer
    mended = mw.create_table(str(tmp_path / "mended"), table.schema, "id")
    names["copy_rows"](table, mended, [older, newer])
    assert read(mended) == {1: "ours", 2: winner, 3: "both", 4: "theirs"}
    mended.merge()
    assert mended.check().ok
    with pytest.raises(mw.RepairError, match="two regions"):
        read(table)
