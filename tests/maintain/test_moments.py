"""Tables as they were at a time, against the states that they went through."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.history import moment
from memwal_sql.storage.base import versions
from memwal_sql.storage.base.versions import BaseVersion
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import BASE_VERSIONS_FOLDER, base_version_of
from tests.maintain.life import SCHEMA, collect, create, rows, values

State = dict[int, int]
START = datetime(2020, 1, 1, tzinfo=UTC).timestamp()
STEP = 60.0


class Life:
    """A table that takes a minute for each step: its files have the times of these."""

    def __init__(self, folder: Path, regions: int) -> None:
        self.folder = folder / "t"
        self.table = create(folder, regions=regions)
        self.writer = self.table.writer()
        self.state: State = {}
        self.states: list[State] = []
        self.now = START - STEP
        self._known: set[Path] = set()
        self.step(lambda: None)

    def step(self, call: Callable[[], object]) -> None:
        """Do something; half a minute later the table has the state of now."""
        self.now += STEP
        call()
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self._known:
                os.utime(path, (self.now, self.now))
                self._known.add(path)
        self.states.append(dict(self.state))

    def upsert(self, first: int, last: int, val: int) -> None:
        self.state |= dict.fromkeys(range(first, last + 1), val)
        self.step(lambda: self.writer.upsert(rows(first, last, val)))

    def delete(self, key: int) -> None:
        self.state.pop(key, None)
        self.step(lambda: self.writer.delete([key]))

    def collect(self, older_than: float = 0.0) -> None:
        age = timedelta(seconds=older_than)
        moment = self.now + STEP / 2
        self.step(lambda: collect(self.table, clock=lambda: moment, older_than=age))

    def at(self, step: int) -> datetime:
        """Half a minute after a step."""
        return datetime.fromtimestamp(START + step * STEP + STEP / 2, UTC)


@pytest.fixture(autouse=True)
def _times_of_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions were committed when their files were written."""
    read = versions.read_base_version

    def dated(store: ObjectStore, version: int) -> BaseVersion | None:
        found = read(store, version)
        for meta in store.list(BASE_VERSIONS_FOLDER):
            if base_version_of(meta.path) == version and found and meta.modified is not None:
                return BaseVersion(version, meta.modified, found.details, found.operation)
        return found

    for module in (moment, versions):
        monkeypatch.setattr(module, "read_base_version", dated)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield life
    life.writer.close()


def grow(life: Life, seed: int, steps: int) -> None:
    random = Random(seed)
    table = life.table
    for val in range(steps):
        match random.choice(["upsert", "upsert", "delete", "flush", "merge", "record", "claim"]):
            case "upsert":
                first = random.randrange(9)
                life.upsert(first, first + random.randrange(4), val)
            case "delete":
                life.delete(random.randrange(9))
            case "flush":
                life.step(life.writer.flush)
            case "merge":
                life.step(table.merge)
            case "record":
                life.step(table.snapshot_regions)
            case "claim":
                life.writer.close()
                life.writer = table.writer()


def test_a_time_is_the_state_of_that_time(life: Life) -> None:
    """Unflushed rows included, through every door, whatever was flushed and merged since."""
    grow(life, 1, 24)
    table, uri = life.table, life.table.uri
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    for step, state in enumerate(life.states):
        at = life.at(step)
        assert values(mw.open_table(uri, timestamp=at)) == state, step
        if step % 9:
            continue
        assert values(table.as_of(timestamp=at.isoformat())) == state
        found = mw.sql(ctx, "SELECT * FROM t TIMESTAMP AS OF $at", at=at).to_pylist()
        assert {row["id"]: row["val"] for row in found} == state
    for step in (17, 5):
        table.restore(timestamp=life.at(step))
        assert values(table) == life.states[step]
    life.step(lambda: None)
    table.close()


def test_now_has_every_row_that_is_durable(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "now", SCHEMA, "id")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    with table.writer() as writer:
        for val in range(12):
            writer.upsert(rows(val, val, val))
            if val == 5:
                writer.flush()
                table.snapshot_regions()
            count = mw.sql(ctx, "SELECT count(*) AS n FROM t TIMESTAMP AS OF (now())")
            assert count.to_pylist() == [{"n": val + 1}]


def test_what_was_collected_is_an_error_that_counts_its_rows_or_the_state(life: Life) -> None:
    """Never a state that lacks rows: of every time, after every collection."""
    refused = 0
    for seed in range(3):
        grow(life, seed, 10)
        life.collect()
        for step, state in enumerate(life.states):
            try:
                then = mw.open_table(life.table.uri, timestamp=life.at(step))
            except mw.InvalidCallError as error:
                refused += 1
                text = str(error)
                assert "rows" in text and "version=" in text, text
            else:
                assert values(then) == state, (seed, step)
    assert refused
    assert values(mw.open_table(life.table.uri, timestamp=life.at(len(life.states)))) == life.state


def test_the_error_says_what_to_read_instead(tmp_path: Path) -> None:
    life = Life(tmp_path, 1)
    life.upsert(0, 4, 1)
    life.step(life.writer.flush)
    recorded, version = dict(life.state), 0

    def record() -> None:
        nonlocal version
        version = life.table.snapshot_regions()

    life.step(record)
    life.upsert(5, 10, 2)
    life.upsert(11, 11, 2)
    step = len(life.states) - 1
    life.step(life.writer.flush)
    life.step(lambda: life.writer.upsert(rows(12, 12, 3)))
    life.collect()
    with pytest.raises(mw.InvalidCallError, match="were flushed and collected since") as one:
        mw.open_table(life.table.uri, timestamp=life.at(step))
    assert f"version={version} reads the last state" in str(one.value)
    assert values(mw.open_table(life.table.uri, version=version)) == recorded
    life.writer.close()


def test_times_within_the_grace_of_collections_are_exact(life: Life) -> None:
    """As readers that began then still read their files."""
    grow(life, 3, 10)
    for seed in range(4, 6):
        grow(life, seed, 12)
        life.collect(10 * STEP)
        newest = len(life.states) - 1
        for step in range(newest - 9, newest + 1):
            then = mw.open_table(life.table.uri, timestamp=life.at(step))
            assert values(then) == life.states[step], (seed, step)


def test_times_that_are_none_of_the_table_are_refused(life: Life) -> None:
    life.upsert(0, 3, 1)
    uri = life.table.uri
    later = datetime.now(UTC) + timedelta(hours=1)
    cases = [(later, "in the future"), (life.at(-2), "before the oldest version")]
    for at, message in cases:
        for call in (
            lambda at=at: mw.open_table(uri, timestamp=at),
            lambda at=at: life.table.as_of(timestamp=at),
            lambda at=at: life.table.restore(timestamp=at),
        ):
            with pytest.raises(mw.InvalidCallError, match=message):
                call()


def test_a_folder_that_was_copied_has_no_times_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions say when they were committed, and its log says nothing."""
    life = Life(tmp_path, 1)
    life.upsert(0, 3, 1)
    life.writer.close()
    known = {n: versions.read_base_version(life.table.context.store, n) for n in (1, 2)}
    monkeypatch.setattr(moment, "read_base_version", lambda _, version: known.get(version))
    copied = life.now + 100 * STEP
    for path in life.folder.rglob("*"):
        os.utime(path, (copied, copied))
    with pytest.raises(mw.InvalidCallError, match="the folder was copied"):
        mw.open_table(life.table.uri, timestamp=life.at(1))
    later = datetime.fromtimestamp(copied + 1, UTC)
    assert values(mw.open_table(life.table.uri, timestamp=later)) == life.state


def test_a_region_that_was_copied_has_no_times_before(life: Life) -> None:
    """Neither where a version has merged rows of it nor where one has only recorded it."""
    life.upsert(0, 8, 1)
    life.step(life.table.snapshot_regions)
    recorded = len(life.states) - 1
    life.step(life.writer.flush)
    life.step(life.table.merge)
    life.upsert(3, 5, 2)
    copied = life.now + 100 * STEP
    for path in (life.folder / "_mem_wal").rglob("*"):
        os.utime(path, (copied, copied))
    for step in range(recorded, len(life.states)):
        with pytest.raises(mw.InvalidCallError, match="before the oldest file of region") as one:
            mw.open_table(life.table.uri, timestamp=life.at(step))
        assert "version=" in str(one.value)
    later = datetime.fromtimestamp(copied + 1, UTC)
    assert values(mw.open_table(life.table.uri, timestamp=later)) == life.state


def test_a_version_beside_collected_ones_is_not_that_of_their_time(life: Life) -> None:
    """A tag keeps an old version, and those between it and the present were cleaned up."""
    table, tagged = life.table, list[int]()

    def tag() -> None:
        tagged.append(table.snapshot_regions())
        table.tags.create("monday", tagged[0])

    life.upsert(0, 8, 1)
    life.step(tag)
    monday = len(life.states) - 1
    for first in (50, 60):
        life.state |= dict.fromkeys(range(first, first + 6), 7)
        more = rows(first, first + 5, 7)
        life.step(lambda more=more: lance.write_dataset(more, table.uri, mode="append"))
    now = life.now + STEP / 2
    life.step(lambda: collect(table, clock=lambda: now, versions_older_than=timedelta(0)))
    following = max(versions.version_numbers(table.context.store))
    assert following == tagged[0] + 2
    for step in (monday, monday + 1):
        with pytest.raises(mw.InvalidCallError, match="were cleaned up") as one:
            table.as_of(timestamp=life.at(step))
        for number in (tagged[0], following):
            assert f"version={number} " in str(one.value)
    assert values(table.as_of(timestamp=life.at(monday + 3))) == life.state


def test_a_merge_that_is_dated_before_its_flush_is_refused(tmp_path: Path) -> None:
    """Its clock is behind the store's: older rows of the log would hide what it has merged."""
    life = Life(tmp_path, 1)
    life.upsert(0, 3, 1)
    life.step(life.writer.flush)
    life.step(life.table.merge)
    earlier = len(life.states) - 1
    before = set(versions.version_numbers(life.table.context.store))
    life.upsert(0, 3, 2)
    dated = life.now
    life.upsert(0, 3, 3)
    life.step(life.writer.flush)
    life.step(life.table.merge)
    for path in (life.folder / BASE_VERSIONS_FOLDER).iterdir():
        if base_version_of(f"{BASE_VERSIONS_FOLDER}/{path.name}") not in before:
            os.utime(path, (dated, dated))
    for step in (earlier + 1, earlier + 2):
        with pytest.raises(mw.InvalidCallError, match="it is behind the store's"):
            life.table.as_of(timestamp=life.at(step))
    assert values(life.table.as_of(timestamp=life.at(earlier))) == life.states[earlier]
    assert values(life.table.as_of(timestamp=life.at(len(life.states) - 1))) == life.state
    life.writer.close()


def test_a_store_without_times_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path, 1)
    life.upsert(0, 3, 1)
    life.writer.close()
    store = type(life.table.context.store)
    listed = store.list

    def without_times(self: ObjectStore, prefix: str) -> list[object]:
        return [type(one)(one.path, one.size) for one in listed(self, prefix)]

    monkeypatch.setattr(store, "list", without_times)
    with pytest.raises(mw.InvalidCallError, match="does not say when"):
        mw.open_table(life.table.uri, timestamp=datetime.now(UTC))


def test_a_merge_of_a_time_keeps_the_columns_of_then(life: Life) -> None:
    life.upsert(0, 3, 1)
    life.step(lambda: life.table.add_columns(pa.schema([pa.field("more", pa.int64())])))
    then = mw.open_table(life.table.uri, timestamp=life.at(1))
    assert then.schema.names == ["id", "val"] and values(then) == life.states[1]
