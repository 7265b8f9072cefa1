"""What LanceDB has not flushed: its WAL entries name no generation (it has Lance 13)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.wal.log import Wal
from tests.interop.lancedb_client import (
    UNSHARDED_ID,
    Handle,
    by_key,
    create,
    folder,
    open_handle,
    rows,
)
from tests.model.writing import session_of

NOW = timedelta(0)


@pytest.fixture
def lancedb(tmp_path: Path) -> Handle:
    return create(tmp_path, LsmWriteSpec.unsharded(), {1: "base", 2: "base"})


@pytest.fixture
def table(lancedb: Handle, tmp_path: Path) -> Any:
    return mw.open_table(folder(tmp_path))


def read(table: Any) -> dict[int, str]:
    return by_key(table.scan().read_all())


def test_unflushed_rows_are_read_everywhere(lancedb: Handle, table: Any) -> None:
    lancedb.upsert({2: "new", 3: "new"})
    lancedb.upsert({3: "newer"})
    expected = {1: "base", 2: "new", 3: "newer"}
    assert read(table) == expected
    assert by_key(table.get([1, 2, 3, 4])) == expected
    session = session_of("t", table, consistency="strong")
    for key, value in expected.items():
        assert session.sql(f"SELECT v FROM t WHERE id = {key}").to_pylist() == [{"v": value}]
    pinned = table.pinned_table().snapshot(table.pin())
    assert sum(source.rows for region in pinned.regions for source in region.sources) == 3
    (region,) = table.regions().to_pylist()
    assert (region["unflushed_rows"], region["writer_epoch"]) == (3, 1)
    entries = table.wal().to_pylist()
    assert [(e["kind"], e["generation"], e["num_rows"]) for e in entries] == [
        ("rows", None, 2),
        ("rows", None, 1),
    ]
    assert table.check().findings == ()
    assert "3" in str(table.overview())


def test_a_claim_replays_them_and_each_fences_the_other(
    lancedb: Handle, table: Any, tmp_path: Path
) -> None:
    lancedb.upsert({2: "theirs", 3: "theirs"})
    with table.writer(turns=False) as writer:
        writer.upsert(rows({3: "ours", 4: "ours"}))
        assert read(table) == {1: "base", 2: "theirs", 3: "ours", 4: "ours"}
        with pytest.raises(RuntimeError, match="fenced"):
            lancedb.upsert({9: "zombie"})
        with pytest.raises(RuntimeError, match="fenced"):
            lancedb.close()
        lancedb.upsert({4: "theirs again"})  # it opens the region anew, and replays ours
        expected = {1: "base", 2: "theirs", 3: "ours", 4: "theirs again"}
        assert lancedb.read() == expected
        with pytest.raises(mw.FencedError):
            writer.upsert(rows({9: "zombie"}))
    assert read(table) == expected
    lancedb.close()
    assert read(table) == expected == open_handle(tmp_path).read()
    assert table.check().ok


def changes(table: Any, after: Any = None) -> list[tuple[Any, ...]]:
    found = table.changes(region=UNSHARDED_ID, after=after).read_all()
    names = ("_change", "id", "v", "_position", "_generation")
    return list(zip(*(found[name].to_pylist() for name in names), strict=True))


def test_the_change_feed_gives_every_change_once_from_any_place(
    lancedb: Handle, table: Any
) -> None:
    """Some generations are LanceDB's, of which no entry says so, and some are ours."""
    written: list[tuple[str, int, str | None]] = []
    seen: list[Any] = []

    def wrote(key: int, value: str | None) -> None:
        written.append(("delete" if value is None else "upsert", key, value))
        after = seen[-1][3:] if seen else None
        seen.extend(changes(table, after))
        assert [one[:3] for one in seen] == written
        assert [one[:3] for one in changes(table)] == written

    for turn in range(3):
        lancedb.upsert({turn: f"theirs {turn}"})
        wrote(turn, f"theirs {turn}")
        lancedb.close()  # flushed
        lancedb.upsert({turn: f"theirs again {turn}"})
        wrote(turn, f"theirs again {turn}")
        if turn:
            lancedb.close()
        with table.writer() as writer:
            writer.delete([turn])
            wrote(turn, None)
            writer.flush()
            writer.upsert(rows({turn: f"ours {turn}"}))
            wrote(turn, f"ours {turn}")
        if not turn:
            with pytest.raises(RuntimeError, match="fenced"):
                lancedb.close()
    for number, one in enumerate(seen):
        for after in (list(one[3:]), one[3]):
            assert [found[:3] for found in changes(table, after)] == written[number + 1 :]
    # A follower that has seen everything goes on, also when all of it is merged and collected.
    lancedb.upsert({7: "last"})
    lancedb.close()
    seen.extend(changes(table, seen[-1][3:]))
    end = table.change_offsets()
    table.merge()
    table.collect_garbage(older_than=NOW)
    assert changes(table, seen[-1][3:]) == []
    assert table.changes(after=end).read_all().num_rows == 0
    lancedb.upsert({8: "later"})
    assert [one[:3] for one in changes(table, seen[-1][3:])] == [("upsert", 8, "later")]


def publish(table: Any, values: dict[int, str]) -> None:
    """Rows that become a generation without WAL entries, as of a large batch of Spark's."""
    form = RowForm()
    task = table.stager("job", form).stage(rows(values).to_batches())
    with LogLimits.set(rows=0, nbytes=0):
        assert table.publisher().publish([task]).rows == len(values)


def test_a_generation_published_beside_them_is_in_its_place_or_an_error(
    lancedb: Handle, table: Any
) -> None:
    lancedb.upsert({1: "theirs"})
    after = changes(table)[-1][3:]
    publish(table, {1: "published"})  # flushes what LanceDB wrote
    assert [one[:3] for one in changes(table, after)] == [("upsert", 1, "published")]
    # Of entries without a generation nothing says any more whether they are older.
    with pytest.raises(mw.ChangesCollectedError, match=r"published without WAL.*change_offsets"):
        changes(table)
    with pytest.raises(RuntimeError, match="fenced"):
        lancedb.close()
    end = table.change_offsets()
    lancedb.upsert({1: "theirs again"})
    found = table.changes(after=end).read_all()
    assert found["v"].to_pylist() == ["theirs again"]
    assert [one[2] for one in changes(table, changes(table, after)[0][3:])] == ["theirs again"]


def test_a_column_of_lance_s_that_is_not_known_is_an_error_that_says_so(
    lancedb: Handle, table: Any
) -> None:
    """As `__wal_row_id`, which later versions of Lance may write."""
    lancedb.upsert({3: "theirs"})
    store = open_store(table.uri)
    wal = Wal(store, UNSHARDED_ID)
    with pa.ipc.open_stream(store.get(wal.path(1))) as stream:
        stored = stream.read_all()
    for name, known in (("__wal_row_id", False), ("dropped", True)):
        metadata = {"lance:field_id": "9"} if known else None
        field = pa.field(name, pa.int64(), metadata=metadata)
        entry = stored.append_column(field, pa.array([7], pa.int64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, entry.schema) as stream:
            stream.write_table(entry)
        store.put(wal.path(1), sink.getvalue().to_pybytes())
        if known:
            assert read(mw.open_table(table.uri))[3] == "theirs"
            continue
        for ask in (read, lambda t: t.get([3]), changes):
            with pytest.raises(mw.UnknownFormatError, match=r"__wal_row_id.*install a newer"):
                ask(mw.open_table(table.uri))
        with table.writer() as writer, pytest.raises(mw.UnknownFormatError, match="__wal_row_id"):
            writer.upsert(rows({4: "ours"}))
        assert "__wal_row_id" in str(table.check())
