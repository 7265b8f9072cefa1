"""The compactor: no answer changes, whatever happens beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.compact import compactor
from memwal_sql.maintain.index_builder import covers_everything
from memwal_sql.maintain.lease import Patience
from memwal_sql.maintain.progress import Progress
from memwal_sql.storage.base.merge_token import regions_in
from tests.maintain.merging_tables import in_base, make_table, progress_of, rows_of
from tests.maintain.merging_tables import write_generations as write
from tests.maintain.test_concurrent_mergers import Sleeper
from tests.model.merging import details_of
from tests.model.waiting import reached
from tests.soak import usual

WIDTH = 4
KEYS = 600
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("n", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("body", pa.string()),
        pa.field("vec", pa.list_(pa.float32(), WIDTH)),
    ]
)
INDEXES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("n", "BTREE", {}),
    ("n", "ZONEMAP", {}),
    ("kind", "BITMAP", {}),
    ("kind", "BLOOMFILTER", {}),
    ("body", "FTS", {}),
    ("vec", "IVF_FLAT", {"num_partitions": 2}),
    ("vec", "IVF_PQ", {"num_partitions": 2, "num_sub_vectors": 2}),
)


def _rows(ids: Any, number: int) -> pa.Table:
    random = np.random.default_rng(number)
    values = random.random(len(ids) * WIDTH, dtype=np.float32)
    return pa.table(
        {
            "id": list(ids),
            "n": [number * 1000 + n % 7 for n in ids],
            "kind": [f"kind {n % 5}" for n in ids],
            "body": [f"word{n % 17} number{n} write{number}" for n in ids],
            "vec": pa.FixedSizeListArray.from_arrays(values, WIDTH),
        },
        schema=SCHEMA,
    )


def _merged(table: mw.Table, ids: Any, number: int, deleted: list[int]) -> None:
    with table.writer(durable=False) as writer:
        writer.upsert(_rows(ids, number))
        if deleted:
            writer.delete(deleted)
        writer.flush()
    table.merge()


def _indexed(folder: Path, *, stable: bool) -> mw.Table:
    """A table with every kind of index, and fragments that merges left."""
    uri = str(folder / "t")
    lance.write_dataset(_rows(range(KEYS), 0), uri, enable_stable_row_ids=stable)
    table = mw.enable(uri, "id")
    for column, kind, parameters in INDEXES:
        table.create_index(column, kind, name=f"{column}_{kind}", **parameters)
    for number in range(1, 6):
        _merged(table, range(number * 40, number * 40 + 90), number, [number, number + 300])
    return table


def _answers(uri: str) -> list[Any]:
    table = mw.open_table(uri)
    vector = _rows(range(4), 3)["vec"][2].as_py()
    found: list[Any] = [table.to_arrow().sort_by("id").to_pylist()]
    for condition in ("n = 3003", "n < 1005", "kind = 'kind 3'", "kind = 'kind 9'", "id = 77"):
        found.append(table.scan(filter=condition).read_all().sort_by("id").to_pylist())
    found += [table.get([key]).to_pylist() for key in (1, 77, 599, 5000)]
    for text in ("word3", "number77", "write4 word2"):
        rows = table.full_text_search("body", text, KEYS).to_pylist()
        found.append(sorted((-row["_score"], row["id"]) for row in rows))
    rows = table.vector_search("vec", vector, 10).to_pylist()
    return [*found, [(row["id"], row["_distance"]) for row in rows]]


def _numbers(uri: str) -> list[int]:
    return [one.fragment_id for one in lance.dataset(uri).get_fragments()]


@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
def test_every_kind_of_index_answers_as_before(tmp_path: Path, stable: bool) -> None:
    table = _indexed(tmp_path, stable=stable)
    before, progress = _answers(table.uri), details_of(table.uri).merged_generations
    recorded = details_of(table.uri).inline_snapshots
    told: list[Progress] = []
    assert table.compact(dry_run=True) == len(_numbers(table.uri)) == 6
    assert table.compact(told.append) == 6
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert (told[-1].done, told[-1].total) == (6, 6)
    assert _answers(table.uri) == before
    assert all(one.num_deletions == 0 for one in lance.dataset(table.uri).get_fragments())
    details, dataset = details_of(table.uri), lance.dataset(table.uri)
    assert details.merged_generations == progress and details.inline_snapshots == recorded
    indexes = [one for one in dataset.describe_indices() if not one.name.startswith("__")]
    assert len(indexes) == len(INDEXES) + 1
    for one in indexes:
        assert covers_everything(dataset, one), one.name
        caught_up = regions_in(details.index_catchup[one.name])
        assert caught_up == regions_in(progress), one.name
    _merged(table, range(50, 100), 9, [120])
    after = _answers(table.uri)
    table.build_indexes()
    assert _answers(table.uri) == after
    assert table.check().ok


def test_indexes_that_are_to_follow_later_are_read_right_and_left_alone(tmp_path: Path) -> None:
    """Lance's compaction with `defer_index_remap`: files of an index have the rows where they were,
    and a compaction over it takes rows from filters."""
    table = _indexed(tmp_path, stable=False)
    table.build_indexes()
    before = _answers(table.uri)
    lance.dataset(table.uri).optimize.compact_files(defer_index_remap=True)
    assert _answers(table.uri) == before
    assert table.build_indexes() == []
    assert _answers(table.uri) == before
    _merged(table, range(300), 8, [5])
    before = _answers(table.uri)
    for call in (partial(table.compact, dry_run=True), table.compact):
        with pytest.raises(mw.UnsupportedError, match="defer_index_remap"):
            call()
    done: list[mw.JobRun] = []
    mw.run_jobs_forever(table, rounds=1, on_run=done.append)
    assert "compact" not in [one.job for one in done]
    assert _answers(table.uri) == before


def test_nothing_is_written_where_there_is_nothing_to_do(tmp_path: Path) -> None:
    table = make_table(tmp_path, [({1: 1}, []), ({2: 2}, [1])])
    for _ in range(2):
        version = lance.dataset(table.uri).version
        assert table.compact() == table.compact(dry_run=True) == 0
        assert lance.dataset(table.uri).version == version
        assert not list(Path(table.uri).glob("_memwal_sql/maintenance/*compact*"))
        table.merge()
        table.compact()


BAD: tuple[dict[str, Any], ...] = (
    {"fragments": 1}, {"fragments": 2.5}, {"fragments": "4"}, {"deleted": 0}, {"deleted": 1.5},
    {"deleted": float("nan")}, {"deleted": "0.1"},
)  # fmt: skip


def test_arguments_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    for arguments in BAD:
        (name,) = arguments
        with pytest.raises(mw.InvalidCallError, match=f"^{name}="):
            table.compact(**arguments)
    table.merge()
    with pytest.raises(mw.InvalidCallError, match="reads version"):
        mw.open_table(table.uri, version=lance.dataset(table.uri).version).compact()


def test_the_past_stays_as_it_was(tmp_path: Path) -> None:
    """Versions, tags, checkpoints, pinned handles; and what is collected after it."""
    table = make_table(tmp_path, ())
    states: dict[int, dict[int, int]] = {}
    for number in range(5):
        write(table, [(dict.fromkeys(range(number, 40 + number), number), [number + 20])])
        table.merge()
        states[lance.dataset(table.uri).version] = rows_of(table)
    first, *_, last = states
    table.tags.create("first", first)
    table.checkpoint("held")
    pinned = mw.open_table(table.uri, version=last)
    write(table, [({99: 99}, [])])  # flushed, not merged
    now, changes = rows_of(table), table.changes().read_all()
    assert table.compact() == 5
    assert table.changes().read_all() == changes
    assert table.history()["operation"].to_pylist()[-3:-1] == ["reserve_fragments", "rewrite"]
    for version, rows in states.items():
        assert rows_of(mw.open_table(table.uri, version=version)) == rows
    for level in ("strong", "manifest"):
        assert rows_of(table, level) == rows_of(mw.open_table(table.uri), level) == now
    assert rows_of(mw.open_table(table.uri), "eventual") == states[last]
    table.collect_garbage(older_than=timedelta(0), versions_older_than=timedelta(0))
    assert rows_of(mw.open_table(table.uri, version="first")) == states[first]
    assert rows_of(mw.open_table(table.uri, checkpoint="held")) == states[last]
    assert rows_of(pinned) == states[last]
    assert rows_of(mw.open_table(table.uri)) == now
    assert table.check().ok


def _foreign_append(table: mw.Table) -> None:
    dataset = lance.dataset(table.uri)
    rows = pa.table({"id": [1000], "val": [1]}).cast(dataset.schema)
    lance.write_dataset(rows, table.uri, mode="append")


def test_regions_whose_record_is_a_file_are_recorded_again(tmp_path: Path) -> None:
    """Protocol rule 23: the file belongs to an entry of the index that the commit replaces."""
    table = make_table(tmp_path, (), regions=[mw.identity("id")])
    write(table, [(dict.fromkeys(range(102), 1), [])])
    table.merge()
    _foreign_append(table)
    table.build_indexes()
    table.snapshot_regions()
    rows = rows_of(table)
    assert table.compact() == 2
    assert details_of(table.uri).num_regions == 102
    assert rows_of(mw.open_table(table.uri, version=lance.dataset(table.uri).version)) == rows
    assert rows_of(mw.open_table(table.uri), "eventual") == rows


STEPS = ("_execute", "_commit")


def _sleeping(within: Any, name: str, work: Callable[[], object]) -> Callable[[], list[Any]]:
    """Begin `work` in a thread that falls asleep before a step of the compactor, while others take
    the lease over; what is returned wakes it, and gives what it returned or raised."""
    within(Patience.set(seconds=0.05))
    asleep, wake = threading.Event(), threading.Event()
    original, outcome = getattr(compactor, name), []

    def sleepy(*args: Any) -> Any:
        if threading.current_thread() is thread and not asleep.is_set():
            asleep.set()
            reached(wake)
        return original(*args)

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    within(patch.object(compactor, name, sleepy))
    thread.start()
    reached(asleep)

    def woken() -> list[Any]:
        wake.set()
        thread.join()
        return outcome

    return woken


def _foreign_delete(table: mw.Table) -> None:
    lance.dataset(table.uri).delete("id = 3")


def _merge_of(rows: dict[int, int]) -> Callable[[mw.Table], object]:
    def merge(table: mw.Table) -> None:
        write(table, [(rows, [])])
        table.merge()

    return merge


BESIDE: dict[str, Callable[[mw.Table], object]] = {
    "a merge into the same fragments": _merge_of({3: 33, 500: 5}),
    "a merge of new keys": _merge_of({500: 5}),
    "a merge with deletes": lambda table: (write(table, [({7: 7}, [8])]), table.merge()),
    "another compactor": lambda table: table.compact(),
    "Lance's compaction": lambda table: lance.dataset(table.uri).optimize.compact_files(),
    "Lance's delete": _foreign_delete,
    "Lance's append": _foreign_append,
    "an index": lambda table: table.create_index("val", "BTREE", replace=True),
    "a record": lambda table: table.snapshot_regions(),
    "a column": lambda table: table.add_columns(pa.field("more", pa.int32())),
    "Lance's compaction, indexes later": lambda table: lance.dataset(
        table.uri
    ).optimize.compact_files(defer_index_remap=True),
}


@pytest.mark.parametrize(
    ("name", "step"),
    usual([*product(BESIDE, STEPS)], 6),
)
def test_whoever_comes_second_looks_again(
    tmp_path: Path, within: Any, name: str, step: str
) -> None:
    """The compactor is not alone, and its lease is gone; nothing is lost, merge progress grows."""
    table = make_table(tmp_path, ())
    for number in range(4):
        write(table, [(dict.fromkeys(range(number, 40), number), [])])
        table.merge()
    other = mw.open_table(table.uri)
    woken = _sleeping(within, step, mw.open_table(table.uri).compact)
    BESIDE[name](other)
    rows, progress = rows_of(mw.open_table(table.uri)), progress_of(table.uri)
    [outcome] = woken()
    assert isinstance(outcome, int), outcome
    assert in_base(table.uri) == rows_of(other) == rows_of(mw.open_table(table.uri)) == rows
    assert progress_of(table.uri) == progress
    for key in (3, 7, 8, 500, 1000):
        assert other.get([key])["val"].to_pylist() == ([rows[key]] if key in rows else [])
    write(table, [({3: 333, 501: 1}, [5])])
    assert table.merge() == 1
    rows.update({3: 333, 501: 1})
    del rows[5]
    assert in_base(table.uri) == rows_of(table) == rows


def test_a_merge_that_slept_over_a_compaction_merges_all_the_same(
    tmp_path: Path, within: Any
) -> None:
    table = make_table(tmp_path, ())
    for number in range(4):
        write(table, [(dict.fromkeys(range(number, 40), number), [])])
        table.merge()
    write(table, [({0: 5, 30: 5}, [31])])
    rows = rows_of(table)
    sleeper = Sleeper(within, mw.open_table(table.uri).merge)
    assert mw.open_table(table.uri).compact() >= 4
    assert sleeper.wake() == 1
    assert in_base(table.uri) == rows_of(mw.open_table(table.uri)) == rows
