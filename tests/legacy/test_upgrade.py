"""Tables of the older format move to the one of today without losing a row (specification 3)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.legacy import upgrade as module
from memwal_sql.legacy.format import OlderMemWal
from memwal_sql.maintain.progress import Progress
from memwal_sql.write.table_writer import TableWriter
from tests.model.writing import upsert_rows
from tests.soak import usual
from tests.storage.older import entry_range, make_older, mem_wal

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64())])
BASE = pa.table({"id": [1, 2, 3], "n": [0, 0, 0]}, schema=SCHEMA)
MEM_WALS = [
    mem_wal("r", 1, "MERGED", entry_range(0, 2)),
    mem_wal("r", 2, "FLUSHED", entry_range(2, 1)),
    mem_wal("r", 3, "OPEN", entry_range(3, 2)),
    mem_wal("s", 1, "OPEN"),
]
EXPECTED = {1: 30, 3: 0, 4: 21, 5: 31}


def read_wal(one: OlderMemWal) -> Iterator[Any]:
    """The entries of the list above; generation 2 first, then 3, which overwrites it."""
    assert one.region == "r"
    if one.generation == 2:
        yield pa.table({"id": [1, 4, 5], "n": [20, 21, 22]}, schema=SCHEMA)
        return
    assert one.generation == 3
    yield pa.record_batch({"id": [1, 2], "n": [30, None], "_tombstone": [False, True]})
    yield pa.table(
        {
            "id": [5, 5, 6, 6],
            "n": [None, 31, 1, None],
            "_tombstone": pa.array([True, None, False, True]),
        }
    )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "table")
    make_older(uri, BASE, MEM_WALS)
    return uri


def rows(table: Any) -> dict[int, int]:
    found = table.scan().read_all()
    assert len(set(found["id"].to_pylist())) == found.num_rows
    return dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))


def test_merged_rows_stay_and_others_come_from_the_function(uri: str) -> None:
    seen: list[Progress] = []
    table = mw.upgrade(uri, read_wal, primary_key="id", progress=seen.append)
    assert rows(table) == rows(mw.open_table(uri)) == EXPECTED
    assert table.primary_key == ("id",) and mw.older_mem_wals(uri) is None
    assert {row["state"] for row in table.generations().to_pylist()} == {"flushed"}
    assert seen == [
        Progress("upgrade", "r", 1, 2, "mem_wals"),
        Progress("upgrade", "r", 2, 2, "mem_wals"),
    ]
    upsert_rows(table, pa.table({"id": [7], "n": [7]}, schema=SCHEMA))
    assert rows(table) == {**EXPECTED, 7: 7}
    assert lance.write_dataset(BASE.slice(0, 0), uri, mode="append").count_rows() == 3


def test_a_table_whose_mem_wals_are_all_merged_needs_no_function(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    make_older(uri, BASE, [MEM_WALS[0], MEM_WALS[3]])
    table = mw.upgrade(uri, primary_key="id", regions=[mw.bucket("id", 4)])
    assert rows(table) == {1: 0, 2: 0, 3: 0}
    assert rows(mw.upgrade(uri)) == {1: 0, 2: 0, 3: 0}  # nothing is left to do
    with pytest.raises(mw.InvalidCallError, match="no MemWAL index of the older format"):
        mw.upgrade(uri, primary_key="id")


def test_without_a_function_the_losses_are_listed_and_nothing_changes(uri: str) -> None:
    before = lance.dataset(uri).version
    with pytest.raises(mw.InvalidCallError) as caught:
        mw.upgrade(uri, primary_key="id")
    text = str(caught.value)
    assert "would lose what is only in the WAL of 2 MemWALs" in text
    assert "region 'r' generation 2 (flushed): WAL entries 2 at 's3://logs/r'" in text
    assert "region 'r' generation 3 (open): WAL entries 3 to 4" in text
    assert "region 's'" not in text and "read_wal=" in text
    assert lance.dataset(uri).version == before
    assert not (Path(uri) / "_memwal_sql").exists()


def test_rows_go_to_regions_of_the_spec_or_keep_their_names(tmp_path: Path, uri: str) -> None:
    spread = mw.upgrade(uri, read_wal, primary_key="id", regions=[mw.bucket("id", 16)])
    assert rows(spread) == EXPECTED
    assert spread.regions().num_rows > 1
    named = str(tmp_path / "named")
    make_older(
        named,
        BASE,
        [
            mem_wal("eu", 1, "OPEN", entry_range(0, 1)),
            mem_wal("us", 1, "SEALED", entry_range(0, 1)),
        ],
    )

    def read(one: OlderMemWal) -> Iterator[Any]:
        yield {"id": [1 if one.region == "eu" else 9], "n": [1]}

    table = mw.upgrade(named, read, primary_key="id", regions=mw.manual())
    assert rows(table) == {1: 1, 2: 0, 3: 0, 9: 1}
    assert table.changes(region="eu").read_all()["id"].to_pylist() == [1]
    assert table.changes(region="us").read_all()["id"].to_pylist() == [9]


class StopError(BaseException):
    """The process ends here."""


STEPS = [
    (module, "_keep"),
    (module, "drop_index"),
    (module, "mark_table"),
    (module, "index_primary_key"),
    (module, "commit_details"),
    (TableWriter, "upsert"),
    (TableWriter, "delete"),
    (TableWriter, "flush"),
    (module, "open_table"),
]


@pytest.mark.parametrize(
    ("owner", "name", "after"),
    usual([(owner, name, after) for owner, name in STEPS for after in (False, True)], 9),
)
def test_an_upgrade_that_stops_anywhere_is_taken_up_again(
    uri: str, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    original = getattr(owner, name)

    def stop(*args: Any, **kwargs: Any) -> Any:
        if after:
            original(*args, **kwargs)
        raise StopError

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stop)
        with pytest.raises(StopError):
            mw.upgrade(uri, read_wal, primary_key="id")
    if name == "open_table":
        assert rows(mw.open_table(uri)) == EXPECTED
        return
    with pytest.raises(mw.InvalidCallError, match="memwal upgrade"):
        mw.open_table(uri)
    found = mw.older_mem_wals(uri)
    assert found is not None and len(found) == 4
    assert rows(mw.upgrade(uri, read_wal, primary_key="id")) == EXPECTED


def test_an_upgrade_is_taken_up_with_the_same_regions_only(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "_move", _stop)
        with pytest.raises(StopError):
            mw.upgrade(uri, read_wal, primary_key="id")
    with pytest.raises(mw.InvalidCallError, match="begun with other regions"):
        mw.upgrade(uri, read_wal, primary_key="id", regions=[mw.bucket("id", 4)])
    assert rows(mw.upgrade(uri, read_wal, primary_key="id")) == EXPECTED


def _stop(*args: Any) -> None:
    raise StopError


def test_of_two_upgrades_at_once_one_is_told(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = module._keep

    def late(*args: Any) -> Any:
        monkeypatch.setattr(module, "_keep", original)
        mw.upgrade(uri, read_wal, primary_key="id")
        return original(*args)

    monkeypatch.setattr(module, "_keep", late)
    with pytest.raises(mw.InvalidCallError, match="being upgraded by somebody else"):
        mw.upgrade(uri, read_wal, primary_key="id")
    assert rows(mw.open_table(uri)) == EXPECTED


def test_rows_that_would_replace_newer_ones_are_refused(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    make_older(uri, BASE, [mem_wal("r", 1, "SEALED", entry_range(0, 1)), mem_wal("r", 2, "MERGED")])
    with pytest.raises(mw.InvalidCallError, match="generation 2 of region 'r' was merged before"):
        mw.upgrade(uri, read_wal, primary_key="id")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a primary key"),
        ({"primary_key": "none"}, "'none' is not in the schema"),
        ({"primary_key": "id", "regions": [mw.bucket("n", 2)]}, "primary key"),
        ({"primary_key": "n"}, "occurs more than once"),
    ],
)
def test_arguments_that_do_not_fit_change_nothing(
    uri: str, arguments: dict[str, Any], message: str
) -> None:
    before = lance.dataset(uri).version
    with pytest.raises(mw.InvalidCallError, match=message):
        mw.upgrade(uri, read_wal, **arguments)
    assert lance.dataset(uri).version == before
    assert rows(mw.upgrade(uri, read_wal, primary_key="id")) == EXPECTED


def test_a_place_without_a_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(mw.InvalidCallError, match="is not a Lance table"):
        mw.upgrade(str(tmp_path / "nothing"))
    with pytest.raises(mw.InvalidCallError, match="is not a Lance table"):
        mw.older_mem_wals(str(tmp_path / "nothing"))
