"""The old row of each change: exact in the region's order, or an error."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.read import LogLimits
from memwal_sql.bulk.rows import RowForm
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.read.changes.old_rows import _KEPT, Kept, Lookups
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.storage.base.memwal_index import commit_details
from tests.model.merging import details_of, manifests, merge_one
from tests.model.process import forget_writers
from tests.model.writing import flush_rows, merge_rows
from tests.soak import SOAK

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("n", pa.int64(), False),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
ALL = timedelta(0)


def rows(*pairs: tuple[int, int]) -> pa.Table:
    ids, numbers = zip(*pairs, strict=True)
    return pa.table({"id": ids, "n": numbers, "tags": [[f"t{n}"] for n in numbers]}, schema=SCHEMA)


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def old(table: Any, **options: Any) -> list[tuple[str, int, int | None, int | None]]:
    """(change, id, n, n before) of every row; None for both without an old row."""
    found = table.changes(old_rows=True, **options).read_all().to_pylist()
    return [
        (row["_change"], row["id"], row["n"], row["_before"] and row["_before"]["n"])
        for row in found
    ]


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")


def test_a_change_comes_with_the_row_that_it_replaced(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, 10), (2, 20), (1, 11)))
        writer.delete(keys(1, 7))
        writer.flush()
        writer.upsert(rows((1, 30), (2, 21)))
    found = table.changes(old_rows=True).read_all()
    assert found.column_names == [*table.changes().schema.names, "_before"]
    struct = pa.struct([field.with_nullable(True) for field in SCHEMA])
    assert found.schema.field("_before").type == struct
    assert found["_before"].to_pylist()[2] == {"id": 1, "n": 10, "tags": ["t10"]}
    expected = [
        ("upsert", 1, 10, None),
        ("upsert", 2, 20, None),
        ("upsert", 1, 11, 10),
        ("delete", 1, None, 11),
        ("delete", 7, None, None),
        ("upsert", 1, 30, None),
        ("upsert", 2, 21, 20),
    ]
    assert old(table) == expected
    some = table.changes(columns=["n"], old_rows=True).read_all()
    assert some.column_names[0] == "n"
    assert some["_before"].to_pylist()[6] == {"n": 20}
    table.merge()
    assert old(table) == expected
    (region,) = table.change_offsets()
    assert old(table, region=region, after=[3, 1]) == expected[5:]


def test_rows_of_before_enable_are_old_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    lance.write_dataset(rows((1, 1), (2, 2)), uri)
    table = mw.enable(uri, primary_key="id")
    with table.writer() as writer:
        writer.upsert(rows((1, 5)))
        writer.delete(keys(2))
    assert old(table) == [("upsert", 1, 5, 1), ("delete", 2, None, 2)]


def test_old_rows_have_the_columns_that_the_table_has_now(table: Any) -> None:
    """The base version from which an old row comes may have others."""
    merge_rows(table, rows((1, 1), (2, 2)))
    forget_writers(table.uri)
    start = table.change_offsets()
    flush_rows(table, rows((1, 5)))
    table.merge()
    forget_writers(table.uri)
    table.rename_column("n", "count")
    table.add_columns({"twice": "count * 2"})
    table = mw.open_table(table.uri)
    flush_rows(table, {"id": [1], "count": [6], "tags": [["x"]], "twice": [0]})
    found = table.changes(after=start, columns=["count", "twice"], old_rows=True).read_all()
    assert found["_before"].to_pylist() == [
        {"count": 1, "twice": None},
        {"count": 5, "twice": 10},
    ]


def test_few_regions_are_kept_between_feeds(tmp_path: Path) -> None:
    """The one that was read last at any size; the answers are the same."""
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, "id", [mw.bucket("id", 3)])
    ids = range(20)
    for most, kept in ((0, 1), (Kept.nbytes, 3)):
        with Kept.set(nbytes=most):
            start = table.change_offsets()
            with table.writer() as writer:
                for number in (1, 2, 3):
                    writer.upsert(rows(*((key, number) for key in ids)))
                    found = old(table, after=start)
                    start = table.change_offsets()
                    if number > 1:
                        expected = [("upsert", key, number, number - 1) for key in ids]
                        assert sorted(found) == expected
            regions = [str(region.region_id) for region in _KEPT._states]
            assert len(set(regions) & set(map(str, start))) == kept


def test_entries_whose_generation_was_collected_in_parts_have_no_old_rows(table: Any) -> None:
    """The entry at the flushed position stays, as native code looks for it."""
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        writer.upsert(rows((2, 2)))
        writer.flush()
        table.collect_garbage(older_than=ALL)
        after = {region: [2, 1] for region in table.change_offsets()}
        assert table.changes(after=after).read_all().num_rows == 1
        with pytest.raises(
            mw.ChangesCollectedError, match="old rows of the changes after WAL position 2"
        ):
            old(table, after=after)
        place = table.change_offsets()
        writer.upsert(rows((1, 3)))
        assert old(table, after=place) == [("upsert", 1, 3, 1)]


def test_base_versions_with_rows_of_later_generations_are_not_taken(table: Any) -> None:
    """Those that a merge has left in the middle, that an index commit has set back, and that a
    native merger has deleted rows from."""
    merge_rows(table, rows((1, 1), (2, 2)))
    start = table.change_offsets()
    with table.writer() as writer:
        writer.upsert(rows((1, 5)))
        writer.delete(keys(2))
        writer.flush()
    expected = [("upsert", 1, 5, 1), ("delete", 2, None, 2)]
    stop_merge(table)
    assert old(table, after=start) == expected
    merge_and_erase_progress(table)
    assert old(table, after=start) == expected
    start = table.change_offsets()
    flush_rows(table, rows((2, 6)))
    table.merge()
    (region,) = manifests(table.uri)
    with table.writer() as writer:
        writer.upsert(rows((1, 7)))
        writer.delete(keys(2))
        writer.flush()
    merge_one(table.uri, region, ["id"])
    assert old(table, after=start) == [
        ("upsert", 2, 6, None),
        ("upsert", 1, 7, 5),
        ("delete", 2, None, 6),
    ]


def stop_merge(table: Any) -> None:
    """Begin a merge that ends after its first commit."""

    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        table.merge(progress=stop)


def merge_and_erase_progress(table: Any) -> None:
    """Merge, and commit an index that was begun before."""
    older = lance.dataset(table.uri)
    details = details_of(table.uri, older)
    with suppress(mw.RepairError), patch.object(Merger, "_record", lambda *_: None):
        table.merge()  # deletes take two commits, and a record before them
    with suppress(mw.ConflictError):
        commit_details(older, details)


def test_a_past_state_says_where_the_changes_after_it_begin(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows((1, 1)))
        writer.flush()
        writer.upsert(rows((1, 2)))
        table.checkpoint("start")
        writer.upsert(rows((1, 3)))
        writer.flush()
    table.merge()
    table.collect_garbage(older_than=ALL)
    state = table.as_of(checkpoint="start")
    assert state.to_arrow(["n"]).to_pylist() == [{"n": 2}]
    assert old(table, after=state.change_offsets()) == [("upsert", 1, 3, 2)]
    version = table.as_of(version=table.snapshot_regions())
    with pytest.raises(mw.InvalidCallError, match="can't say where its changes end"):
        version.change_offsets()


class Follower:
    """Keeps the rows, and a sum, by the changes of a table, and checks each old row."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.offsets: dict[str, list[int]] = {}
        self.rows: dict[int, int] = {}
        self.sum = 0
        self.anew = 0

    def read(self, rng: Random) -> int:
        """Read on, perhaps not to the end; the number of batches."""
        with Lookups.set(rows=rng.choice([1, 5, 50_000])):
            stream = self.table.changes(after=self.offsets, old_rows=True)
            try:
                batches = list(stream)
                again = list(self.table.changes(after=self.offsets, old_rows=True))
                assert [b.to_pylist() for b in again] == [b.to_pylist() for b in batches]
            except mw.ChangesCollectedError:
                self.begin()
                return 1
        # Parts of a published generation have the place before it: they are taken as a whole.
        some = batches[: rng.randint(1, 6)] if rng.random() < 0.7 else batches
        for batch in some:
            self.take(batch)
        return len(batches)

    def take(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            before = row["_before"]
            expected = self.rows.get(row["id"])
            assert (before and before["n"]) == expected, (row, expected)
            assert before is None or before["id"] == row["id"]
            self.sum -= 0 if before is None else before["n"]
            if row["_change"] == "delete":
                self.rows.pop(row["id"], None)
            else:
                self.rows[row["id"]] = row["n"]
                self.sum += row["n"]
            self.offsets[row["_region"]] = [row["_position"], row["_generation"]]

    def begin(self) -> None:
        """Begin with all rows of a checkpoint, and follow from there."""
        self.anew += 1
        name = f"follower{self.anew}"
        self.table.checkpoint(name)
        state = self.table.as_of(checkpoint=name)
        self.offsets = state.change_offsets()
        self.rows = {r["id"]: r["n"] for r in state.to_arrow(["id", "n"]).to_pylist()}
        self.sum = sum(self.rows.values())


class History:
    """Random writes and jobs over a table of three regions."""

    def __init__(self, table: Any, rng: Random) -> None:
        self.table, self.rng = table, rng
        self.writer = table.writer(memtable_rows=rng.choice([8, 10_000]))
        self.number = 0

    def close(self) -> None:
        self.writer.close()

    def step(self) -> None:
        self.number += 1
        rng, table = self.rng, self.table
        match rng.randrange(16):
            case 0 | 1:
                self.writer.delete(keys(*rng.sample(range(30), rng.randint(1, 4))))
            case 2 | 3:
                self.writer.flush()
            case 4:
                table.merge()
            case 5:
                self.merge_oddly()
            case 6:
                self.writer.close()
                self.writer = table.writer(memtable_rows=rng.choice([8, 10_000]))
            case 7:
                with mw.transaction(table) as tx:
                    tx.upsert(table, self.some())
                    tx.delete(table, keys(rng.randrange(30)))
            case 8:
                task = table.stager("job", RowForm()).stage(self.distinct().to_batches())
                with LogLimits.set(rows=rng.choice([1, 100])):
                    table.publisher().publish([task], BatchMark("query", self.number))
            case 9:
                versions = rng.choice([None, ALL])
                table.collect_garbage(older_than=ALL, versions_older_than=versions)
            case 10:
                table.compact()
            case _:
                self.writer.upsert(self.some())

    def merge_oddly(self) -> None:
        uri = self.table.uri
        match self.rng.randrange(3):
            case 0:
                stop_merge(self.table)
            case 1:  # as native code does
                for region in manifests(uri):
                    merge_one(uri, region, ["id"])
            case _:
                merge_and_erase_progress(self.table)

    def some(self) -> pa.Table:
        count = self.rng.randint(1, 8)
        return rows(*((self.rng.randrange(30), self.rng.randrange(1000)) for _ in range(count)))

    def distinct(self) -> pa.Table:
        ids = self.rng.sample(range(30), self.rng.randint(1, 8))
        return rows(*((key, self.rng.randrange(1000)) for key in ids))


@pytest.mark.parametrize("seed", range(4 * SOAK))
def test_old_rows_keep_a_sum_through_any_history(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions=[mw.bucket("id", 3)])
    history = History(table, rng)
    follower = Follower(mw.open_table(uri))
    for _ in range(80):
        history.step()
        if rng.random() < 0.3:
            follower.read(rng)
    history.close()
    while follower.read(rng):
        pass
    held = table.to_arrow(["id", "n"]).to_pylist()
    assert follower.rows == {row["id"]: row["n"] for row in held}
    assert follower.sum == sum(row["n"] for row in held)
