"""Staged writes without Spark: whatever fails, a batch is there once (protocol rule 24)."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk import read as staged_read
from memwal_sql.bulk.files import KeptFiles
from memwal_sql.bulk.read import LogLimits, StagedTables
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.errors import (
    FencedError,
    InvalidCallError,
    MemWalError,
    SourceGoneError,
    StoreUnavailableError,
)
from memwal_sql.state.batch_marks import BatchMark, last_complete
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.table import Table
from tests.each import each
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.writing import flush_rows, merge_rows, upsert_rows
from tests.soak import usual
from tests.write.hooked_store import Call, HookedStore, Outage

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
PLAIN = RowForm()
# As if everything were large, or small.
LARGE = StageLimits(generation=1)
SMALL = StageLimits(generation=1 << 40)


@pytest.fixture(autouse=True)
def _no_waiting(no_pauses: None) -> None:
    """Also where no sleep can be given."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 3)])


def stage(
    table: Table,
    rows: dict[str, Any],
    limits: StageLimits = SMALL,
    form: RowForm = PLAIN,
    *,
    replaces: bool = False,
) -> StagedTask:
    """What a task would send to the driver."""
    stager = table.stager("job", form, limits, replaces=replaces)
    return pickle.loads(pickle.dumps(stager.stage(pa.table(rows).to_batches(max_chunksize=7))))


def values(table: Table) -> dict[int, str]:
    rows = mw.open_table(table.uri).scan().read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["val"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key came twice"
    return found


def keys(first: int, last: int, val: str) -> dict[str, Any]:
    return {"id": list(range(first, last)), "val": [val] * (last - first)}


@pytest.mark.parametrize("limits", [SMALL, LARGE, StageLimits(buffered=200, generation=100)])
def test_what_tasks_staged_is_published_once(table: Table, limits: StageLimits) -> None:
    publisher = table.publisher()
    first = [stage(table, keys(0, 60, "a"), limits), stage(table, keys(60, 100, "a"), limits)]
    assert values(table) == {}
    assert publisher.publish(first, BatchMark("q", 0)).rows >= 100
    assert values(table) == dict.fromkeys(range(100), "a")
    upsert_rows(table, {"id": [5], "val": ["newer"]})
    again = [stage(table, keys(0, 100, "a"), limits)]
    for one in (publisher, mw.open_table(table.uri).publisher()):
        assert one.publish(again, BatchMark("q", 0)).regions == 0
    assert values(table) == dict.fromkeys(range(100), "a") | {5: "newer"}
    publisher.publish([stage(table, keys(0, 10, "b"), limits)], BatchMark("q", 1))
    expected = dict.fromkeys(range(10), "b") | dict.fromkeys(range(10, 100), "a")
    assert values(table) == expected
    table.merge()
    assert values(table) == expected


CUTS = product((Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY), usual(range(1, 9), 3), (SMALL, LARGE))


@pytest.mark.parametrize(("kind", "nth", "limits"), usual([*CUTS], 10))
def test_a_batch_cut_through_anywhere_is_completed_by_its_replay(
    table: Table, limits: StageLimits, nth: int, kind: Kind
) -> None:
    """Other writers may write, flush and merge between the attempts, and what they wrote stays."""
    upsert_rows(table, keys(0, 30, "before"))
    fault = Fault("put_if_absent", kind, nth, "_mem_wal")
    faulty = opened_over(table.uri, lambda store: FaultyStore(store, [fault]))
    mark = BatchMark("q", 0)
    done: set[int] = set()
    try:
        faulty.publisher().publish([stage(table, keys(10, 40, "batch"), limits)], mark)
    except MemWalError:
        done = {key for key, val in values(table).items() if val == "batch"}
    overwritten = sorted(done)[:3]
    merge_rows(table, {"id": [100, *overwritten], "val": ["after"] * (len(overwritten) + 1)})
    table.publisher().publish([stage(table, keys(10, 40, "batch"), limits)], mark)
    expected = dict.fromkeys(range(10), "before") | dict.fromkeys(range(10, 40), "batch")
    assert values(table) == expected | dict.fromkeys([100, *overwritten], "after")


@pytest.mark.parametrize(
    ("limits", "lands", "same"), usual([*product([SMALL, LARGE], [True, False], [True, False])], 3)
)
def test_a_batch_is_completed_after_an_outage_of_the_store(
    tmp_path: Path, limits: StageLimits, lands: bool, same: bool
) -> None:
    """At any of its puts: what a publisher knows of its claim may be wrong by then."""
    table = mw.create_table(tmp_path / "one region", SCHEMA, "id")
    hooked = opened_over(table.uri, HookedStore)
    publisher, store = hooked.publisher(), hooked.context.store
    for batch in range(40):
        mark, rows = BatchMark("q", batch), keys(0, 9, str(batch))
        staged = [stage(table, rows, limits)]
        outage = store.hook = Outage(batch + 1, lands=lands)
        try:
            publisher.publish(staged, mark)
        except MemWalError:
            outage.end()
            other = publisher if same else table.publisher()
            other.publish([stage(table, rows, limits)], mark)  # the tasks have run again
        assert values(table) == dict.fromkeys(range(9), str(batch)), f"put {batch + 1}"
        assert table.last_batch("q") == batch
        if not outage.begun:
            break
    assert 3 < batch < 39


@pytest.mark.parametrize("limits", [SMALL, LARGE])
@pytest.mark.parametrize("lost", ["marks of manifests", "markers"])
def test_one_record_of_a_batch_is_enough(table: Table, limits: StageLimits, lost: str) -> None:
    """Native code drops our fields of the manifests; who dies early leaves no marker. The batch's
    entries are flushed and collected, and its rows are replaced."""
    publisher, mark = table.publisher(), BatchMark("q", 3)
    publisher.publish([stage(table, keys(0, 30, "a"), limits)], mark)
    flush_rows(table, keys(0, 30, "newer"))
    table.collect_garbage(older_than=timedelta(0))
    assert last_complete(open_store(table.uri), "q") == 3
    if lost == "markers":
        for note in Path(table.uri).glob("_memwal_sql/batches/q/*"):
            note.unlink()
    else:
        for region_id, manifest in manifests(table.uri).items():
            assert manifest.published == {"q": 3}
            RegionManifests(open_store(table.uri), region_id).commit(manifest, published={})
    for one in (publisher, mw.open_table(table.uri).publisher()):
        assert one.publish([stage(table, keys(0, 30, "a"), limits)], mark).rows == 0
    assert values(table) == dict.fromkeys(range(30), "newer")


def test_a_fence_in_the_middle_is_reported_and_nothing_claims_again(table: Table) -> None:
    publisher = table.publisher()
    publisher.publish([stage(table, keys(1, 2, "a"))], BatchMark("q", 0))
    (region,) = publisher._regions.values()
    claimed = region.writer

    def overtaken() -> Any:
        found = claimed()
        upsert_rows(table, keys(1, 2, "by the plain writer"))
        return found

    with patch.object(region, "writer", overtaken), pytest.raises(FencedError):
        publisher.publish([stage(table, keys(1, 2, "b"))], BatchMark("q", 1))
    assert values(table) == {1: "by the plain writer"}
    publisher.publish([stage(table, keys(1, 2, "b"))], BatchMark("q", 1))
    assert values(table) == {1: "b"}


def test_a_publisher_reads_on_where_others_have_written_between_its_batches(table: Table) -> None:
    """It reads no entry twice, and puts its fence behind theirs at once."""
    asked: Counter[str] = Counter()

    def count(operation: str, path: str, call: Call) -> Any:
        asked[operation] += "/wal/" in path
        return call()

    publisher = opened_over(table.uri, lambda store: HookedStore(store, count)).publisher()
    for batch in range(4):
        publisher.publish([stage(table, keys(1, 2, str(batch)))], BatchMark("q", batch))
    with table.writer() as writer:
        for number in range(5):
            writer.upsert(keys(1, 2, f"theirs {number}"))
    asked.clear()
    publisher.publish([stage(table, keys(1, 2, "last"))], BatchMark("q", 4))
    assert values(table) == {1: "last"}
    assert asked["put_if_absent"] == 2  # a fence and the batch
    assert asked["get"] <= 6 + 4  # theirs, and some looks at what comes next


def test_who_flushes_rows_of_others_hears_what_failed(table: Table) -> None:
    """Not that a writer has to be opened again: the caller has none."""
    upsert_rows(table, keys(0, 9, "a"))

    def refuse(operation: str, path: str, call: Call) -> Any:
        if "bloom" in path:
            raise StoreUnavailableError("it is down")
        return call()

    flushed = opened_over(table.uri, lambda store: HookedStore(store, refuse))
    with pytest.raises(StoreUnavailableError, match="it is down"):
        flushed.flush()
    assert table.flush() == 3


def test_batches_leave_one_fence_and_not_one_each(table: Table) -> None:
    publisher = table.publisher()
    for batch in range(5):
        publisher.publish([stage(table, keys(0, 30, str(batch)))], BatchMark("q", batch))
    entries = table.wal().to_pylist()
    assert table.regions()["writer_epoch"].to_pylist() == [1, 1, 1]
    assert len(entries) == 3 * (1 + 5)
    assert values(table) == dict.fromkeys(range(30), "4")


def test_a_full_wal_is_flushed_and_its_marks_survive(table: Table) -> None:
    """The entries that carry the marks may be collected after a flush."""
    with LogLimits.set(rows=25):
        publisher = table.publisher()
        for batch in range(6):
            rows = keys(batch * 20, batch * 20 + 40, str(batch))
            publisher.publish([stage(table, rows)], BatchMark("q", batch))
    assert min(table.regions()["current_generation"].to_pylist()) > 2
    expected = values(table)
    for entry in Path(table.uri).glob("_memwal_sql/batches/q/*"):
        entry.unlink()  # as if the driver had died before it noted that the batch is complete
    assert table.publisher().publish([stage(table, keys(0, 90, "x"))], BatchMark("q", 5)).rows == 0
    assert values(table) == expected


@pytest.mark.parametrize("limits", [SMALL, LARGE])
def test_the_same_key_from_two_tasks(table: Table, limits: StageLimits) -> None:
    publisher = table.publisher()
    x, y = keys(0, 5, "x"), keys(4, 9, "y")
    with pytest.raises(InvalidCallError, match=r"two tasks have a row of the key {'id': 4}"):
        publisher.publish([stage(table, x, limits), stage(table, y, limits)])
    assert values(table) == {}
    form = RowForm(order_by="at")

    def ordered(rows: dict[str, Any], at: int) -> StagedTask:
        return stage(table, {**rows, "at": [at] * len(rows["id"])}, limits, form)

    with pytest.raises(InvalidCallError, match="same value in the orderBy column"):
        publisher.publish([ordered(x, 1), ordered(y, 1)])
    publisher.publish([ordered(x, 2), ordered(y, 1)])
    assert values(table) == dict.fromkeys(range(5), "x") | dict.fromkeys(range(5, 9), "y")
    with pytest.raises(InvalidCallError, match="1 rows have a null"):
        stage(table, {"id": [1], "val": ["x"], "at": pa.nulls(1, pa.int64())}, limits, form)


@pytest.mark.parametrize("form", [PLAIN, RowForm(order_by="at")])
def test_small_parts_of_many_tasks_are_read_some_at_a_time(table: Table, form: RowForm) -> None:
    """What the driver holds doesn't grow with the number of tasks."""
    tasks = []
    for task in range(9):
        first = 10 * task - (5 if form.order_by else 0)  # some rows are older than another task's
        rows = keys(first, 10 * task + 10, str(task))
        tasks.append(stage(table, {**rows, "at": [task] * len(rows["id"])}, form=form))
    with StagedTables.set(nbytes=100), LogLimits.set(rows=1):
        table.publisher().publish(tasks, BatchMark("q", 0))
        assert len(table.generations()) > 3 * 3
    expected = {key: str((key + 5) // 10 if form.order_by else key // 10) for key in range(90)}
    expected |= dict.fromkeys(range(85, 90), "8")
    if form.order_by:
        expected |= dict.fromkeys(range(-5, 0), "0")
    assert values(table) == expected
    with StagedTables.set(nbytes=100):
        table.replace_staged(tasks)
    assert values(table) == expected


def test_the_file_of_a_task_is_read_once(table: Table) -> None:
    asked = Counter[str]()

    def count(operation: str, path: str, call: Call) -> Any:
        asked[operation] += "/staging/" in path and path.endswith(".arrow")
        return call()

    publisher = opened_over(table.uri, lambda store: HookedStore(store, count)).publisher()
    limits = StageLimits(generation=1 << 40, inline=0)
    for nbytes, most in ((1 << 20, 5), (0, 2 * 5 * 3)):
        tasks = [stage(table, keys(40 * n, 40 * n + 40, "x"), limits) for n in range(5)]
        asked.clear()
        with KeptFiles.set(nbytes=nbytes):
            publisher.publish(tasks)
        assert 0 < asked.total() <= most
        assert values(table) == dict.fromkeys(range(200), "x")


def test_what_was_staged_elsewhere_is_missed_before_anything_is_published(table: Table) -> None:
    limits = StageLimits(generation=1 << 40, inline=0)
    task = stage(table, keys(0, 30, "a"), limits)
    Path(table.uri, str(task.pieces[-1].path)).unlink()
    with pytest.raises(SourceGoneError, match="under the same URI"):
        table.publisher().publish([task])
    assert values(table) == {}


def test_within_one_task_the_last_row_wins_or_the_highest_in_order(table: Table) -> None:
    rows = {"id": [1, 1, 2], "val": ["a", "b", "c"]}
    table.publisher().publish([stage(table, rows, form=RowForm(duplicates="last"))])
    assert values(table) == {1: "b", 2: "c"}
    form = RowForm(order_by="at", delete_column="gone")
    more = {**rows, "at": [5, 4, 1], "gone": [False, False, True]}
    table.publisher().publish([stage(table, more, form=form)])
    assert values(table) == {1: "a"}


def test_a_killed_task_leaves_nothing_that_counts(table: Table) -> None:
    stager = table.stager("job", PLAIN, StageLimits(buffered=1, generation=1))

    def dies() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(keys(0, 200_000, "a"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stager.stage(dies())
    assert list(Path(table.uri).glob("_memwal_sql/staging/job/*"))
    assert values(table) == {}
    table.discard_staged("job")
    assert not [f for f in Path(table.uri).glob("_memwal_sql/staging/**/*") if f.is_file()]


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize("limits", [SMALL, LARGE])
def test_replacing_all_rows_is_one_step(table: Table, limits: StageLimits, replaces: bool) -> None:
    with table.writer() as writer:
        writer.upsert(keys(0, 50, "old"))
        writer.flush()
        writer.upsert(keys(40, 60, "old, in the WAL"))
    before = mw.open_table(table.uri).pin()
    version = table.replace_staged([stage(table, keys(10, 20, "new"), limits, replaces=replaces)])
    assert values(table) == dict.fromkeys(range(10, 20), "new")
    assert version <= mw.open_table(table.uri).version
    assert table.get([5, 15]).to_pylist() == [{"id": 15, "val": "new"}]
    assert len(before.regions) == 3
    merge_rows(table, {"id": [5], "val": ["again"]})
    assert values(table) == dict.fromkeys(range(10, 20), "new") | {5: "again"}
    table.replace_staged([])
    assert values(table) == {}


def test_a_replacement_takes_over_the_files_that_tasks_wrote(table: Table) -> None:
    """Their rows don't pass through the driver, unless some are older than another task's."""
    form = RowForm(order_by="at", delete_column="gone")
    limits = StageLimits(buffered=200, generation=1)

    def staged(rows: dict[str, Any], at: int, gone: bool = False) -> StagedTask:
        count = len(rows["id"])
        more = {**rows, "at": [at] * count, "gone": [gone] * count}
        return stage(table, more, limits, form, replaces=True)

    alone, older = staged(keys(0, 140_000, "a"), 1), staged(keys(300_000, 300_010, "old"), 1)
    newer = staged(keys(300_005, 300_020, "b"), 2)
    assert len(alone.pieces) == 2  # of two tables that were read one after the other
    deletes = staged(keys(300_018, 300_030, ""), 3, gone=True)
    read: list[int] = []
    rows = staged_read.StagedReader.rows

    def counted(self: Any, piece: Any) -> pa.Table:
        found = rows(self, piece)
        read.append(found.num_rows)
        return found

    with patch.object(staged_read.StagedReader, "rows", counted):
        table.replace_staged([newer, alone, older, deletes])
    assert sorted(read) == [10, 12, 15]
    expected = dict.fromkeys(range(140_000), "a") | dict.fromkeys(range(300_000, 300_005), "old")
    assert values(table) == expected | dict.fromkeys(range(300_005, 300_018), "b")


def test_a_replacement_that_fails_changes_nothing(table: Table) -> None:
    upsert_rows(table, keys(0, 50, "old"))
    with pytest.raises(InvalidCallError, match="two tasks"):
        table.replace_staged([stage(table, keys(0, 3, "x")), stage(table, keys(2, 5, "y"))])
    with (
        patch("lance.LanceDataset.commit", side_effect=OSError("conflict")),
        pytest.raises(mw.RetryError),
    ):
        table.replace_staged([stage(table, keys(0, 3, "x"))])
    assert values(table) == dict.fromkeys(range(50), "old")


NESTED = pa.schema({"id": pa.int64(), "s": pa.struct([("x", pa.int64())]), "val": pa.string()})


@pytest.fixture
def nested(tmp_path: Path) -> Table:
    """A table with a row in its base: Lance gives ids that no file of the base has once more."""
    table = mw.create_table(tmp_path / "nested", NESTED, "id")
    merge_rows(table, [{"id": 9, "s": {"x": 9}, "val": "v9"}])
    return table


def _rename(uri: str) -> None:
    for path, name in (("val", "text"), ("s.x", "z")):
        lance.dataset(uri).alter_columns({"path": path, "name": name})


def _drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["val"])


def _add_again(uri: str) -> None:
    lance.dataset(uri).drop_columns(["val"])
    lance.dataset(uri).add_columns(pa.field("val", pa.string()))


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("limits", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (_rename, lambda n: {"id": n, "s": {"z": n}, "text": f"v{n}"}),
        (_drop, lambda n: {"id": n, "s": {"x": n}}),
    ],
)
def test_columns_that_change_while_rows_are_staged_go_by_id(
    nested: Table, limits: StageLimits, ordered: bool, change: Any, expected: Any
) -> None:
    """In a message, in a generation, and, where two tasks have a key, in one that is read."""
    publisher = nested.publisher()
    staged = []
    for task, numbers in enumerate([range(9), range(5)] if ordered else [range(9)]):
        rows = [{"id": n, "s": {"x": n}, "val": f"v{n}"} for n in numbers]
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in NESTED.names}
        columns |= {"at": [task] * len(rows)} if ordered else {}
        form = RowForm(order_by="at" if ordered else None)
        staged.append(stage(nested, columns, limits, form))
    change(nested.uri)
    publisher.publish(staged)
    found = mw.open_table(nested.uri).scan().read_all().sort_by("id")
    assert found.to_pylist() == [expected(n) for n in range(10)]


@each("limits", [SMALL, LARGE])
@each("change", [_add_again, lambda uri: mw.open_table(uri).add_columns({"p": "id + 1"})])
def test_rows_that_were_staged_before_a_column_was_added_are_refused(
    tmp_path: Path, limits: StageLimits, change: Any
) -> None:
    """Others have filled it: it would become null in the rows of these keys."""
    table = mw.create_table(tmp_path / "t", NESTED, "id")
    merge_rows(table, [{"id": 1, "s": {"x": 9}, "val": "v9"}])
    publisher = table.publisher()
    columns = {"id": [1], "s": [{"x": 1}], "val": ["v1"]}
    staged = stage(table, columns, limits)
    change(table.uri)
    name = mw.open_table(table.uri).schema.names[-1]
    merge_rows(table, [{"id": 1, name: "9" if name == "val" else 9}])
    rows = mw.open_table(table.uri).to_arrow().to_pylist()
    with pytest.raises(mw.ReopenError, match=f"'{name}' .* was added.*run the job again"):
        publisher.publish([staged])
    assert mw.open_table(table.uri).to_arrow().to_pylist() == rows
    assert rows[0][name] in ("9", 9)


def test_rows_that_lack_columns_are_refused_or_null_as_the_form_says(nested: Table) -> None:
    rows = {"id": [1], "val": ["new"]}
    schema = pa.table(rows).schema
    with pytest.raises(
        mw.InvalidCallError, match=r"rows lack the columns \['s'\].*missing=\"null\""
    ):
        PLAIN.check(schema, nested.info)
    with pytest.raises(mw.InvalidCallError, match=r"rows lack the columns \['s'\]"):
        stage(nested, rows)
    RowForm(deletes=True).check(pa.schema({"id": pa.int64()}), nested.info)
    nulls = RowForm(missing="null")
    nulls.check(schema, nested.info)
    nested.publisher().publish([stage(nested, rows, form=nulls)])
    assert nested.get([1]).to_pylist() == [{"id": 1, "s": None, "val": "new"}]
    with pytest.raises(mw.InvalidCallError, match="missing='drop'"):
        RowForm(missing="drop").check(schema, nested.info)


def test_a_publisher_learns_of_a_column_that_was_dropped_and_added_again(nested: Table) -> None:
    publisher = nested.publisher()
    nulls = RowForm(missing="null")
    publisher.publish([stage(nested, {"id": [1], "val": ["before"]}, form=nulls)])
    _add_again(nested.uri)
    publisher.publish([stage(nested, {"id": [2], "val": ["after"]}, form=nulls)])
    assert values(nested) == {1: None, 2: "after", 9: None}
