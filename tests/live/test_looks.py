"""Looks of several threads at one table: live rows are of the state that a query has looked at, or
the query looks again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from memwal_native import LiveScan
from memwal_sql.read.closed import ClosedRead, OlderReadError
from memwal_sql.read.live.advance import closed_regions
from memwal_sql.read.live.image import TableImage
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.taken import TakenRegion, news_of, taken_region
from memwal_sql.state.base_table import BaseTable
from planner.model import LiveTable, Query
from tests.each import each
from tests.model.writing import session_of

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


More: TypeAlias = Callable[[mw.Table, ExitStack], tuple[dict[int, int], Callable[[], object]]]


def scan_of(live: LiveTable, *columns: str) -> LiveScan | None:
    return live.scan(SCHEMA, Query(columns or ("id", "v")), None, (), 2)


def rows_of(scan: LiveScan) -> dict[int, int]:
    parts = [pa.table(scan.partition(part)) for part in range(scan.partitions)]
    rows = pa.concat_tables(parts).to_pydict()
    return dict(zip(rows["id"], rows["v"], strict=True))


class Reader:
    """A handle, and an image of its table whose looks are taken in when the test says so."""

    def __init__(self, uri: str) -> None:
        self.table = mw.open_table(uri)
        self.image = TableImage(self.table.context, self.table.tracker)

    def live(self) -> LiveTable:
        """What a query has after a look that is taken in at once."""
        collector = self.table.collector
        closed = collector._closed(collector.base_for("strong"), ())
        live = self.image.of(closed, lambda: closed)
        assert live is not None
        return live

    def look(self, base: BaseTable | None = None) -> Callable[[], dict[int, int] | None]:
        """Look, and return what takes it in: the live rows that a query would have then."""
        collector = self.table.collector
        closed = collector._closed(base or collector.base_for("strong"), ())

        def taken() -> dict[int, int] | None:
            live = self.image.of(closed, lambda: closed)
            scan = None if live is None else scan_of(live)
            return None if scan is None else rows_of(scan)

        return taken


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "v": [1, 2, 3]})
    return table


@pytest.fixture
def reader(table: mw.Table) -> Iterator[Reader]:
    with Live.set(enabled=1, least_rows=0, waited=1):
        reader = Reader(table.uri)
        assert reader.look()() is None  # has them made
        yield reader


def upsert(table: mw.Table, value: int) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "v": [value] * 3})


def everywhere(value: int) -> dict[int, int]:
    return dict.fromkeys([1, 2, 3], value)


@pytest.mark.parametrize("change", ["upsert", "buffered", "flush", "merge", "claim"])
def test_an_older_look_is_made_again(table: mw.Table, reader: Reader, change: str) -> None:
    upsert(table, 7)
    older = reader.look()
    if change == "buffered":
        writer = table.writer(durable=False, wal_flush_interval_s=3600)
        writer.upsert({"id": [1, 2, 3], "v": [8, 8, 8]})
        older = reader.look()
        writer.upsert({"id": [1, 2, 3], "v": [9, 9, 9]})
    elif change != "flush":
        upsert(table, 9)
    if change in ("flush", "merge"):
        table.flush()
    if change == "merge":
        table.merge()
    newer = reader.look()
    expected = everywhere(7 if change == "flush" else 9)
    assert newer() == expected
    with pytest.raises(OlderReadError):
        older()
    assert reader.look()() == expected
    if change == "buffered":
        writer.close()


def test_looks_side_by_side_that_find_the_same_have_the_same_rows(
    table: mw.Table, reader: Reader
) -> None:
    upsert(table, 7)
    looks = [reader.look() for _ in range(3)]
    assert [look() for look in reversed(looks)] == [everywhere(7)] * 3


def test_a_state_that_was_taken_stays_while_looks_find_nothing_new(
    table: mw.Table, reader: Reader
) -> None:
    upsert(table, 7)
    live = reader.live()
    assert reader.look()() == everywhere(7)
    assert scan_of(live) is not None
    upsert(table, 8)
    assert reader.look()() == everywhere(8)
    assert scan_of(live) is None


def test_all_rows_of_a_look_are_there_at_once(table: mw.Table, reader: Reader) -> None:
    """Also to those who read without a look, between any two calls that change them."""
    kept = reader.image._image
    assert kept is not None and kept.live is not None
    live, seen = kept.live, list[dict[int, int]]()

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(live, name)

        def __len__(self) -> int:
            return len(live)

        def apply(self, *changes: Any) -> None:
            live.apply(*changes)
            scan = live.scan(live.state, [0, 1], None, (), None, 2)
            assert scan is not None
            seen.append(rows_of(scan))

    kept.live = Watched()  # type: ignore[assignment]
    with Live.set(checked=1):
        with mw.transaction(table) as transaction:
            transaction.upsert(table, {"id": [1, 2, 3], "v": [7, 7, 7]})
        assert reader.look()() == everywhere(7)
    assert seen == [everywhere(7)]


def test_a_column_is_loaded_at_the_state_that_the_rows_have(table: mw.Table) -> None:
    """A query whose look is older has no part in that."""
    with Live.set(enabled=1, least_rows=0, waited=1):
        reader = Reader(table.uri)
        for _ in range(2):
            older = reader.live()
            scan_of(older, "id")
        upsert(table, 8)
        newer = reader.live()
        assert scan_of(older) is scan_of(newer) is None
        scan = scan_of(newer)
        assert scan is not None
        assert rows_of(scan) == everywhere(8)


def buffered_into_a_second_memtable(
    table: mw.Table, writers: ExitStack
) -> tuple[dict[int, int], Callable[[], object]]:
    """What a later look finds that an earlier one lacks, at the same end of the log."""
    writer = table.writer(durable=False, wal_flush_interval_s=3600, memtable_rows=4)
    writers.enter_context(writer).upsert({"id": [1, 2, 3], "v": [7, 7, 7]})
    return {1: 9, 2: 7, 3: 7, 4: 9}, lambda: writer.upsert({"id": [1, 4], "v": [9, 9]})


def of_a_region_that_is_new(
    table: mw.Table, writers: ExitStack
) -> tuple[dict[int, int], Callable[[], object]]:
    writer = writers.enter_context(mw.open_table(table.uri).writer())
    writer.upsert({"id": [1], "v": [7]})
    return {1: 7, 4: 9}, lambda: writer.upsert({"id": [4], "v": [9]})


@each("more", [buffered_into_a_second_memtable, of_a_region_that_is_new])
@each("query", ["SELECT sum(v) FROM t", "SELECT v FROM t WHERE id = 1"])
def test_no_column_is_loaded_from_a_look_that_lacks_rows(
    uri: str, monkeypatch: pytest.MonkeyPatch, more: More, query: str
) -> None:
    """The query looks at all regions, or at that of its key; a later look is taken in before."""
    of_memtable = more is buffered_into_a_second_memtable
    regions = mw.unsharded() if of_memtable else [mw.identity("id")]
    table = mw.create_table(uri, SCHEMA, "id", regions=regions)
    with ExitStack() as writers, Live.set(enabled=1, least_rows=0, waited=1):
        expected, write = more(table, writers)
        for _ in range(2):
            table.to_arrow(["id"])
        look = table.collector._closed

        def overtaken(*arguments: Any) -> Any:
            older = look(*arguments)
            monkeypatch.undo()
            write()
            assert table.to_arrow(["id"]).num_rows == len(expected)
            return older

        monkeypatch.setattr(table.collector, "_closed", overtaken)
        session_of("t", table).sql(query).collect()
        assert table.collector._closed == look
        for _ in range(2):
            rows = table.to_arrow(["id", "v"]).to_pydict()
            assert dict(zip(rows["id"], rows["v"], strict=True)) == expected


def test_a_generation_is_read_unless_its_rows_were_taken_in(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    collector = table.collector
    with table.writer() as writer:
        writer.upsert({"id": [1], "v": [1]})
        (region,) = closed_regions(collector._closed(collector.base_for("strong"), ()))
        before = taken_region(region, None)
        writer.flush()
        closed = collector._closed(collector.base_for("strong"), ())
        (region,) = closed_regions(closed)

        def is_read(before: TakenRegion) -> bool:
            return any(news_of(region, before, closed.read.base, {}))

        assert not is_read(before)
        assert is_read(replace(before, epoch=before.epoch - 1))
        assert is_read(replace(before, end=before.end - 1))
        assert is_read(replace(before, memtables={}))
        assert is_read(replace(before, is_quiet=False))


def test_two_queries_have_one_image_made(table: mw.Table) -> None:
    begun: list[Callable[[], object]] = []
    with Live.set(enabled=1, least_rows=0, reads=0), background_by(begun.append):
        reader = Reader(table.uri)
        looks = [reader.look() for _ in range(3)]
        assert [look() for look in looks] == [None] * 3
        (build,) = begun
        build()
        assert [look() for look in looks] == [{1: 1, 2: 2, 3: 3}] * 3
        assert len(begun) == 1


def test_a_query_looks_again_and_else_reads_the_files(table: mw.Table) -> None:
    """Another thread takes in a newer look after each one of the query."""
    with Live.set(enabled=1, least_rows=0, waited=1):
        reader = Reader(table.uri)
        collector, image = reader.table.collector, reader.image
        reader.look()()

        looks = 0

        def overtaken(closed: ClosedRead, whole: Callable[[], ClosedRead]) -> LiveTable | None:
            """The live rows, which another query has moved on."""
            nonlocal looks
            looks += 1
            upsert(table, looks)
            reader.look()()
            return image.of(closed, whole)

        collector._live = overtaken
        rows = reader.table.to_arrow().to_pydict()
        assert looks == 3
        assert dict(zip(rows["id"], rows["v"], strict=True)) == everywhere(2)


def test_a_look_over_an_earlier_base_version_with_the_same_rows_is_taken_in(
    table: mw.Table, reader: Reader
) -> None:
    """Queries read a version for some time after merges, when others read the newest."""
    upsert(table, 7)
    table.flush()
    assert reader.look()() == everywhere(7)
    base = reader.table.collector.base_for("strong")
    table.merge()
    reader.table.catch_up()
    assert reader.look()() == everywhere(7)
    upsert(table, 8)
    assert reader.look(base)() == everywhere(8)
    assert reader.look()() == everywhere(8)


def test_another_version_under_the_same_number_drops_live_rows(
    table: mw.Table, uri: str, tmp_path: Path
) -> None:
    """After a copy of the table was put back, with the commits that followed it."""
    table.flush()
    table.merge()
    saved = tmp_path / "saved"
    shutil.copytree(uri, saved)
    lance.write_dataset(pa.table({"id": [4], "v": [4]}, SCHEMA), uri, mode="append")
    with Live.set(enabled=1, least_rows=0, waited=1):
        reader = Reader(uri)
        for _ in range(2):
            rows = reader.look()()
        assert rows == {1: 1, 2: 2, 3: 3, 4: 4}
        shutil.rmtree(uri)
        shutil.move(saved, uri)
        lance.write_dataset(pa.table({"id": [5], "v": [5]}, SCHEMA), uri, mode="append")
        reader.table.refresh()
        for _ in range(2):
            rows = reader.look()()
        assert rows == {1: 1, 2: 2, 3: 3, 5: 5}


@each("first", ["SELECT count(*) FROM t WHERE id > 0", "SELECT id FROM t WHERE id = 2"])
def test_columns_are_loaded_for_lookups(table: mw.Table, first: str) -> None:
    """Also where lookups are all that is asked, each of which looks at the region of its key."""
    with Live.set(enabled=1, least_rows=0, waited=1):
        session = session_of("t", table)
        session.sql(first).to_arrow_table()
        for _ in range(2):
            found = session.sql("SELECT v FROM t WHERE id = 2").to_arrow_table()
            assert found.to_pydict() == {"v": [2]}
        assert table.overview().live.columns == ("id", "v")
        assert "LiveRowsExec" in str(session.sql("SELECT v FROM t WHERE id = 2").execution_plan())


@each("most", [64, 1])
def test_lookups_alone_are_asked_of_native_code_too(table: mw.Table, most: int) -> None:
    """After a look at all regions, if the table has few; until rows change."""
    with Live.set(enabled=1, least_rows=0, waited=1, looked=most):
        session = session_of("t", table)
        lookup = partial(session.sql, "SELECT v FROM t WHERE id = 2")

        def asked(times: int) -> int:
            """How many of so many lookups native code answers without a look."""
            before = table.answers.count
            for _ in range(times):
                lookup().to_arrow_table()
            return table.answers.count - before

        asked(4)
        assert asked(3) == (3 if most == 64 else 0)
        upsert(table, 8)
        assert lookup().to_pydict() == {"v": [8]}
        asked(4)
        assert asked(3) == (3 if most == 64 else 0)
        assert lookup().to_pydict() == {"v": [8]}
