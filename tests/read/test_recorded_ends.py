"""Protocol rule 9: what a recorded end covers was complete, so that torn it is damage and no tail.

Checkpoints, pinned snapshots, places in the change feed and manifests record ends.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal, encode_fence
from tests.model.process import as_another_process, forget_writers
from tests.model.writing import upsert_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("s", pa.string())])
DELETE = 3  # the position of the delete: after the fence, and the rows
ALL = list(range(10))
LEFT = [n for n in ALL if n not in (3, 4)]
CUTS = pytest.mark.parametrize("part", [0, 2], ids=["empty", "half"])
Read = Callable[[], object]


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """One region: ten rows flushed, and a delete of two above them."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": ALL, "s": ["x"] * 10}, schema=SCHEMA))
        writer.flush()
        writer.delete([3, 4])
    forget_writers(table.uri)
    return table


def _region(table: mw.Table) -> UUID:
    (name,) = open_store(table.uri).list_folders(paths.MEM_WAL_FOLDER)
    return UUID(name)


def _wal(table: mw.Table) -> Wal:
    return Wal(open_store(table.uri), _region(table))


def _cut(table: mw.Table, part: int, position: int = DELETE) -> None:
    path = Path(table.uri) / _wal(table).path(position)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // part] if part else b"")


def _ids(rows: Any) -> list[int]:
    return sorted(rows.read_all()["id"].to_pylist())


def _readers(table: mw.Table) -> dict[str, Read]:
    """Reads that go by an end recorded now, each by somebody who has read nothing yet."""
    table.checkpoint("cp")
    pinned = pickle.dumps(table.pin())
    ends = table.change_offsets()

    def opened(**options: Any) -> mw.Table:
        return mw.open_table(table.uri, **options)

    return {
        "checkpoint": lambda: opened(checkpoint="cp").count_rows(),
        "lookup": lambda: opened(checkpoint="cp").get([3]),
        "pinned": lambda: opened().pinned_table().snapshot(pickle.loads(pinned)),
        "until": lambda: opened().changes(until=ends).read_all(),
        "until a position": lambda: opened().changes(until=DELETE).read_all(),
        "after": lambda: opened().changes(after=ends).read_all(),
        "after a position": lambda: opened().changes(after=DELETE).read_all(),
    }


def _write(table: mw.Table) -> None:
    upsert_rows(mw.open_table(table.uri), pa.table({"id": [100], "s": ["later"]}, schema=SCHEMA))
    forget_writers(table.uri)


@CUTS
@pytest.mark.parametrize("written", [False, True], ids=["", "written-since"])
def test_a_torn_entry_below_a_recorded_end_is_an_error(
    table: mw.Table, part: int, written: bool
) -> None:
    readers = _readers(table)
    if written:
        _write(table)
    with as_another_process():
        for read in readers.values():
            read()
        _cut(table, part)
        for name, read in readers.items():
            try:
                read()
            except mw.TornEntryError as error:
                assert _wal(table).path(DELETE) in str(error), name
            else:
                pytest.fail(f"{name}: read over a torn entry")
        report = mw.open_table(table.uri).check()
        assert any("'cp'" in one.where for one in report.of(Severity.ERROR)), str(report)


@CUTS
def test_a_fence_that_skips_it_later_makes_no_checkpoint_right(table: mw.Table, part: int) -> None:
    """The feed goes on as the table does; a checkpoint found the entry complete."""
    readers = _readers(table)
    _cut(table, part)
    _write(table)
    with as_another_process():
        for name in ("checkpoint", "lookup", "pinned"):
            with pytest.raises(mw.TornEntryError):
                readers[name]()
        for name in readers.keys() - {"checkpoint", "lookup", "pinned"}:
            readers[name]()
        assert _ids(mw.open_table(table.uri).scan()) == [*ALL, 100]


@CUTS
@pytest.mark.parametrize("fenced", [False, True], ids=["", "below-a-fence"])
def test_an_end_is_recorded_below_a_torn_tail(table: mw.Table, part: int, fenced: bool) -> None:
    """Nobody was told that it is there, and no claim has said yet that it is not."""
    _cut(table, part)
    if fenced:  # the first fence of a claim that has not come further
        assert _wal(table).append(DELETE + 1, encode_fence(writer_epoch=2)).landed
    ((end, _),) = table.change_offsets().values()
    assert end == DELETE - 1
    table.checkpoint("cp")
    pinned = table.pin()
    assert [one.wal_end for one in pinned.regions] == [DELETE]
    for _ in range(2):
        with as_another_process():
            assert _ids(mw.open_table(table.uri, checkpoint="cp").scan()) == ALL
            mw.open_table(table.uri).pinned_table().snapshot(pinned)
            mw.open_table(table.uri).changes(until={str(_region(table)): end}).read_all()
        manifests = RegionManifests(open_store(table.uri), _region(table))
        manifests.commit(manifests.latest(), writer_epoch=2)
        _write(table)
    assert [one.wal_end > DELETE + 1 for one in table.pin().regions] == [True]
    table.checkpoint("later")
    assert _ids(mw.open_table(table.uri, checkpoint="later").scan()) == [*ALL, 100]


@CUTS
def test_what_a_manifest_says_was_complete_is_no_torn_tail(table: mw.Table, part: int) -> None:
    manifests = RegionManifests(open_store(table.uri), _region(table))
    manifests.commit(manifests.latest(), wal_entry_position_last_seen=DELETE)
    _cut(table, part)
    reads: tuple[Callable[[mw.Table], object], ...] = (
        lambda t: t.count_rows(),
        lambda t: t.pin(),
        lambda t: t.checkpoint("cp"),
        lambda t: t.change_offsets(),
        lambda t: t.changes().read_all(),
        lambda t: t.writer().upsert([{"id": 1, "s": "y"}]),
    )
    for read in reads:
        with as_another_process(), pytest.raises(mw.TornEntryError):
            read(mw.open_table(table.uri))
    (found,) = (one for one in mw.open_table(table.uri).check() if one.check == "wal")
    assert (found.severity, "complete before" in found.what) == (Severity.ERROR, True)


@CUTS
def test_a_torn_entry_that_is_flushed_ends_no_feed(table: mw.Table, part: int) -> None:
    with mw.open_table(table.uri).writer() as writer:
        writer.delete([5])
        writer.flush()
    last = _wal(table).positions()[-1]
    _cut(table, part, last)
    with as_another_process(), pytest.raises(mw.TornEntryError):
        mw.open_table(table.uri).changes().read_all()
    assert _ids(mw.open_table(table.uri).scan()) == [n for n in LEFT if n != 5]
