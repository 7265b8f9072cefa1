"""Two versions of the package at one table: right or refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import CorruptFileError, FencedError, UnknownFormatError
from memwal_sql.storage.format_versions import FORMAT_VERSION
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.records.table import Records, check_current, read_record
from tests.each import each
from tests.model.faults import FaultyStore
from tests.model.opened import opened_over
from tests.model.writing import session_of, upsert_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string())])
NEWER = FORMAT_VERSION + 1
INSTALL = r"install memwal_sql 7\.1\.0 or newer"
ROWS = {"id": [1], "v": ["new"]}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    uri = str(tmp_path / "table")
    with mw.create_table(uri, SCHEMA, "id").writer() as writer:
        writer.upsert({"id": [1, 2], "v": ["a", "b"]})
        writer.flush()
    return uri


def table_record(store: ObjectStore) -> dict[str, Any]:
    latest = Records(store, "table").latest()
    assert latest is not None
    return dict(latest.content)


def raised(uri: str, **content: Any) -> None:
    """What a newer package does before it writes what this one does not know."""
    store = open_store(uri)
    records = Records(store, "table")
    latest = records.latest()
    assert latest is not None
    after = {**latest.content, "package": "7.1.0", **content}
    path = records.path(latest.version + 1)
    assert store.put_if_absent(path, json.dumps(after).encode())


def commit_base(uri: str) -> None:
    lance.dataset(uri).update_metadata({"memwal_sql:touched": "1"})


def values(table: mw.Table) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.scan().read_all().to_pylist()}


def test_a_table_says_what_it_needs_and_who_made_it(uri: str) -> None:
    content = table_record(open_store(uri))
    names = ("format_version", "reader_version", "writer_version")
    assert [content[name] for name in names] == [FORMAT_VERSION] * 3
    assert content["package"] == mw.__version__
    overview = mw.open_table(uri).overview()
    assert overview.format_version == FORMAT_VERSION
    assert overview.storage_version == lance.dataset(uri).data_storage_version


@each("name", ["table", "maintenance", "floors", "publishing"])
@each("version", [0, FORMAT_VERSION - 1, NEWER, 10**15])
def test_every_record_says_in_which_direction_to_look(
    tmp_path: Path, name: str, version: int
) -> None:
    """An older one said to install a newer package."""
    store = open_store(str(tmp_path))
    path = Records(store, name).path(1)
    store.put(path, json.dumps({"format_version": version, "package": "7.1.0"}).encode())
    with pytest.raises(UnknownFormatError, match=f"{path} has format version {version}") as caught:
        Records(store, name).latest()
    newer = "install memwal_sql 7.1.0 or newer" in str(caught.value)
    assert newer is (version > FORMAT_VERSION)
    assert ("use memwal_sql 7.1.0 that wrote it" in str(caught.value)) is not newer
    store.put(path, json.dumps({"format_version": version, "package": "x; rm -r /"}).encode())
    with pytest.raises(UnknownFormatError) as caught:
        Records(store, name).latest()
    assert "rm -r" not in str(caught.value)


@pytest.mark.parametrize("key", ["reader_version", "writer_version"])
@pytest.mark.parametrize("value", [0, -1, 1.0, "2", True, None, [], float("inf"), 2**70])
def test_what_is_no_version_is_damage(uri: str, key: str, value: object) -> None:
    raised(uri, **{key: value})
    with pytest.raises(CorruptFileError, match=r"_memwal_sql/table/0+2\.json"):
        mw.open_table(uri)


def _upsert(table: mw.Table) -> None:
    upsert_rows(table, ROWS)


def _insert(table: mw.Table) -> None:
    context = session_of("t", table)
    with mw.memwal_errors():
        context.sql("INSERT INTO t VALUES (1, 'new')").collect()


WRITES: dict[str, Callable[[mw.Table], object]] = {
    "writer": _upsert,
    "INSERT": _insert,
    "merge": lambda table: table.merge(),
    "create_index": lambda table: table.create_index("v", "FTS"),
    "drop_index": lambda table: table.drop_index("id_idx"),
    "build_indexes": lambda table: table.build_indexes(),
    "snapshot_regions": lambda table: table.snapshot_regions(),
    "checkpoint": lambda table: table.checkpoint("now"),
    "drop_checkpoint": lambda table: table.drop_checkpoint("held"),
    "collect_garbage": lambda table: table.collect_garbage(),
    "publisher": lambda table: table.publisher(),
    "discard_staged": lambda table: table.discard_staged("job"),
}


def state(uri: str) -> dict[str, int]:
    store = open_store(uri)
    folders = ("_mem_wal", "_memwal_sql", "_versions")
    return {meta.path: meta.size for folder in folders for meta in store.list(folder)}


def test_nothing_is_written_to_a_table_that_needs_a_newer_writer(uri: str) -> None:
    """Neither by a handle that was opened before nor by one after; both read on."""
    before = mw.open_table(uri)
    before.checkpoint("held")
    raised(uri, writer_version=NEWER)
    there = state(uri)
    for table in (before, mw.open_table(uri)):
        for name, write in WRITES.items():
            with pytest.raises(UnknownFormatError, match=INSTALL):
                write(table)
            assert state(uri) == there, name
        assert values(table) == {1: "a", 2: "b"}
        table.collect_garbage(dry_run=True)
        table.check()
        assert state(uri) == there


def test_a_table_that_needs_a_newer_reader_is_not_opened(uri: str) -> None:
    before = mw.open_table(uri)
    raised(uri, reader_version=NEWER)
    with pytest.raises(UnknownFormatError, match=f"to be read by format version {NEWER}") as caught:
        mw.open_table(uri)
    assert "install memwal_sql 7.1.0 or newer" in str(caught.value)
    with pytest.raises(UnknownFormatError):  # who can't read can't write
        before.merge()
    assert values(before) == {1: "a", 2: "b"}  # nothing new is there yet
    commit_base(uri)
    for read in (lambda: values(before), lambda: before.get([1]), before.refresh, before.regions):
        with pytest.raises(UnknownFormatError, match=INSTALL):
            read()


def test_a_writer_that_was_open_is_refused_at_its_next_claim_and_flush(uri: str) -> None:
    table = mw.open_table(uri)
    with table.writer() as idle, table.writer() as claimed:
        claimed.upsert({"id": [3], "v": ["c"]})
        raised(uri, writer_version=NEWER)
        claimed.upsert({"id": [4], "v": ["d"]})  # an entry that every version can read
        with pytest.raises(UnknownFormatError, match=INSTALL):
            claimed.flush()
        with pytest.raises(UnknownFormatError, match=INSTALL):
            claimed.upsert(ROWS)
        there = state(uri)
        with pytest.raises(UnknownFormatError, match=INSTALL):
            idle.upsert(ROWS)
        epochs = state(uri)
        with pytest.raises(UnknownFormatError, match=INSTALL):  # it does not claim a second time
            idle.upsert(ROWS)
        assert state(uri) == epochs
        # A claim that comes too late leaves a higher epoch and a fence, and takes nothing.
        assert {path.split("/")[2] for path in epochs.keys() - there.keys()} == {"manifest", "wal"}
    assert values(table) == {1: "a", 2: "b", 3: "c", 4: "d"}


def test_a_claim_on_either_side_of_the_change_is_fenced_or_refused(uri: str) -> None:
    """Who raises the version claims every region afterwards: no order of the two leaves a writer
    of the older version that is neither."""
    old = mw.open_table(uri).writer(turns=False)
    old.upsert({"id": [3], "v": ["c"]})
    with mw.open_table(uri).writer() as newer:  # opened before, so that it may go on here
        raised(uri, writer_version=NEWER)
        with pytest.raises(UnknownFormatError):
            newer.upsert({"id": [5], "v": ["e"]})
    with pytest.raises(FencedError):
        old.upsert({"id": [4], "v": ["d"]})


class _Asked(FaultyStore):
    """Notes the objects that are read."""

    asked: list[str]

    def get(self, path: str) -> bytes:
        self.asked.append(path)
        return bytes(self.__getattr__("get")(path))


def test_a_claim_asks_once_and_a_warm_read_never(uri: str) -> None:
    asked = _Asked.asked = []
    table = opened_over(uri, _Asked)
    with table.writer() as writer:
        asked.clear()
        writer.upsert(ROWS)
        assert len([path for path in asked if "/table/" in path]) == 1
        asked.clear()
        for _ in range(3):
            writer.upsert(ROWS)
            table.get([1])
            values(table)
        assert [path for path in asked if "/table/" in path] == []


def test_a_table_that_was_enabled_anew_takes_no_writes_for_the_one_before(uri: str) -> None:
    store = open_store(uri)
    known = read_record(store)
    check_current(store, known, writes=True)
    raised(uri, incarnation="00000000-0000-4000-8000-000000000001")
    check_current(store, known, writes=False)
    with pytest.raises(mw.ReopenError, match="another table"):
        check_current(store, known, writes=True)
