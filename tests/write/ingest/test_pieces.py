"""Large calls are taken piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.dataset as pds
import pytest

from exec_nodes.arrow.row_stream import RowStream, opened
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.pieces import Pieces, cut, normalised, rows_bytes
from planner.regions.factories import bucket
from tests.each import each
from tests.write.hooked_store import Call, HookedStore
from tests.write.tables import Table

pytestmark = pytest.mark.slow

ROWS = 1_000
PIECE = 4_000


class Exporter:
    """Rows of a library that this package does not know."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested)


def given(start: int = 0, rows: int = ROWS) -> pa.Table:
    ids = range(start, start + rows)
    return pa.table({"id": pa.array(ids, pa.int64()), "val": [f"v{i:010}" for i in ids]})


def chunked(rows: pa.Table) -> list[pa.RecordBatch]:
    return rows.to_batches(max_chunksize=37)


IN_MEMORY: dict[str, Callable[[pa.Table], Any]] = {
    "table": lambda rows: rows,
    "chunked table": lambda rows: pa.Table.from_batches(chunked(rows)),
    "batch": lambda rows: rows.to_batches()[0],
    "list of batches": chunked,
    "dict": lambda rows: rows.to_pydict(),
    "list of dicts": lambda rows: rows.to_pylist(),
    "generator of dicts": lambda rows: iter(rows.to_pylist()),
    "pandas": lambda rows: rows.to_pandas(),
    "polars": polars.from_arrow,
}
STREAMS: dict[str, Callable[[pa.Table], Any]] = {
    "reader": lambda rows: rows.to_reader(max_chunksize=37),
    "one batch": lambda rows: rows.to_reader(),
    "dataset": pds.dataset,
    "scanner": lambda rows: pds.dataset(rows).scanner(),
    "generator of batches": lambda rows: iter(chunked(rows)),
    "generator of tables": lambda rows: iter([rows.slice(0, 300), rows.slice(300)]),
    "exporter": Exporter,
}
FORMS = IN_MEMORY | STREAMS


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with Pieces.set(piece_bytes=PIECE):
        yield


def entries(store: HookedStore, table: Table, data: Any, **options: Any) -> list[int]:
    """The sizes of the WAL entries of an upsert."""
    sizes: list[int] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        result = call()
        if operation == "put_if_absent" and "/wal/" in path:
            sizes.append(len(table.store.get(path)))
        return result

    store.hook = hook
    with table.writer(store, memtable_bytes=2 * PIECE, **options) as writer:
        assert writer.upsert(data).rows == ROWS
    return sizes[1:]  # without the fence


@each("form", FORMS)
def test_a_large_call_of_any_form_is_written_in_small_entries(form: str, tmp_path: Path) -> None:
    table, rows = Table(tmp_path), given()
    sizes = entries(HookedStore(table.store), table, FORMS[form](rows))
    assert table.values() == dict(zip(*rows.to_pydict().values(), strict=True))
    assert len(sizes) > 5
    assert max(sizes) < 2 * PIECE


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_later_pieces_replace_those_of_earlier_ones(form: str, tmp_path: Path) -> None:
    table = Table(tmp_path, regions=(bucket("id", 3),))
    twice = pa.table({"id": [i % 100 for i in range(ROWS)], "val": list(map(str, range(ROWS)))})
    with table.writer(memtable_bytes=2 * PIECE) as writer:
        writer.upsert(FORMS[form](twice))
    assert table.values() == {i: str(ROWS - 100 + i) for i in range(100)}


@each("form", IN_MEMORY)
def test_rows_in_memory_are_refused_as_a_whole(form: str, tmp_path: Path) -> None:
    table, rows = Table(tmp_path), given().to_pydict()
    rows["id"][777] = None
    with table.writer(memtable_bytes=2 * PIECE) as writer:
        with pytest.raises(InvalidCallError, match="id"):
            writer.upsert(FORMS[form](pa.table(rows)))
        assert table.values() == {}
        assert writer.upsert(given(5, 1)).rows == 1


@pytest.mark.parametrize("form", STREAMS)
def test_a_stream_ends_with_a_note_of_the_rows_before(form: str, tmp_path: Path) -> None:
    table, rows = Table(tmp_path), given().to_pydict()
    rows["id"][777] = None
    with (
        table.writer(memtable_bytes=2 * PIECE) as writer,
        pytest.raises(InvalidCallError, match="in the rows from row") as caught,
    ):
        writer.upsert(FORMS[form](pa.table(rows)))
    written = len(table.values())
    assert 0 < written <= 777
    assert caught.value.__notes__ == [f"the first {written} rows of this call are written"]
    assert sorted(table.values()) == list(range(written))


def test_a_stream_of_no_rows_is_looked_at(tmp_path: Path) -> None:
    table = Table(tmp_path)
    with table.writer() as writer:
        assert writer.upsert(given().slice(0, 0).to_reader()).rows == 0
        with pytest.raises(InvalidCallError, match="key"):
            writer.upsert(given().slice(0, 0).select(["val"]).to_reader(), missing="null")


def test_deletes_and_changes_are_taken_piece_by_piece(tmp_path: Path) -> None:
    table = Table(tmp_path)
    changes = given().append_column("_op", pa.array(["u", "d", "u", "u"] * (ROWS // 4)))
    for data in (changes, changes.to_reader(max_chunksize=10)):
        with table.writer(memtable_bytes=2 * PIECE) as writer:
            assert writer.apply(data).rows == ROWS
        assert sorted(table.values()) == [i for i in range(ROWS) if i % 4 != 1]
        with table.writer(memtable_bytes=2 * PIECE) as writer:
            assert writer.delete(range(ROWS)).rows == ROWS
        assert table.values() == {}


def test_tombstones_are_cut_by_their_size_and_not_by_that_of_keys(tmp_path: Path) -> None:
    """A NULL of a fixed size takes the room of a value."""
    wide = pa.schema([pa.field("id", pa.int64(), False), ("vec", pa.list_(pa.float32(), 100))])
    table = Table(tmp_path, wide)
    sizes: list[int] = []
    with table.writer(memtable_bytes=2 * PIECE) as writer:
        append = writer._append
        writer._append = lambda batch: (sizes.append(batch.nbytes), append(batch))[1]  # type: ignore[method-assign]
        assert writer.delete(list(range(200))).rows == 200
    assert len(sizes) > 10
    assert max(sizes) <= PIECE


def test_pieces_follow_the_size_of_rows_that_differ() -> None:
    texts = ["x" * (3_000 if i < 10 else 1) for i in range(1_000)]
    rows = pa.table({"id": range(1_000), "val": texts})
    parts = list(cut(rows, PIECE))
    assert pa.concat_tables(parts).equals(rows)
    assert all(rows_bytes(part) <= PIECE or part.num_rows == 1 for part in parts)


def test_a_dictionary_that_all_rows_share_makes_pieces_as_its_values_would() -> None:
    values = pa.array(["x" * 100 + str(i) for i in range(100)] * 20)
    parts = list(cut(pa.table({"id": range(2_000), "val": values.dictionary_encode()}), PIECE))
    assert len(parts) < 3 * values.nbytes / PIECE
    assert all(part["val"].cast(pa.string()).nbytes <= PIECE for part in parts)


def test_arrays_that_point_nowhere_are_refused_before_they_are_measured() -> None:
    offsets = pa.py_buffer(pa.array([0, 2**30, 5] * 700, pa.int32()).buffers()[1])
    broken = pa.Array.from_buffers(pa.string(), 2_000, [None, offsets, pa.py_buffer(b"x" * 9_000)])
    rows = pa.table({"val": broken})
    for data in (rows, RowStream(rows.schema, iter(rows.to_batches()))):
        with pytest.raises(InvalidCallError, match="val"):
            list(normalised(data, lambda part: part.to_batches()[0], PIECE))


def test_a_call_holds_copies_of_a_piece_and_not_of_all_rows(tmp_path: Path) -> None:
    """Counted at every entry that is put: 32 MB in pieces of 0.25 MB."""
    count, before = 128, pa.total_allocated_bytes()
    table = Table(tmp_path, regions=(bucket("id", 2),))
    peaks: list[int] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        peaks.append(pa.total_allocated_bytes() - before)
        return call()

    def batches() -> Iterator[pa.RecordBatch]:
        for at in range(count):
            ids = range(at * 250, at * 250 + 250)
            yield pa.record_batch({"id": pa.array(ids), "val": [f"{i:01000}" for i in ids]})

    store = HookedStore(table.store, hook)
    options = {"memtable_bytes": 1 << 20, "max_unflushed_bytes": 4 << 20}
    with Pieces.set(piece_bytes=1 << 18), table.writer(store, **options) as writer:
        assert writer.upsert(batches()).rows == count * 250
        writer.flush()
    assert max(peaks) < 10 << 20


def test_other_things_are_no_streams() -> None:
    for data in (given(), [1, 2], {"id": [1]}, 5, "text", polars.from_arrow(given())):
        assert opened(data) is data
    assert opened(iter([1, 2])) == [1, 2]
    assert opened(iter([])) == []
