"""Files whose values are named more often than they are stored are read within bounds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memwal_sql as mw
from exec_nodes.arrow.row_stream import RowStream, WholeRows
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.files import FileFormat, batches_of, named_file
from memwal_sql.write.ingest.missing import ERROR
from memwal_sql.write.ingest.normalise import Normaliser
from memwal_sql.write.ingest.parquet_rows import ParquetBatches
from memwal_sql.write.ingest.pieces import Pieces, normalised
from tests.each import each

ROWS = 2_000
TEXT = "x" * 100
VECTOR = pa.list_(pa.float32(), 16)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("v", VECTOR),
    ]
)
PIECE = 10_000


def repeated() -> pa.RecordBatch:
    """Rows of which hardly a value is stored."""
    ends, zeros = pa.array([ROWS], pa.int32()), pa.array([0] * ROWS, pa.int32())
    lengths = pa.array([10] * ROWS, pa.int32())
    return pa.record_batch(
        {
            "id": pa.RunEndEncodedArray.from_arrays(ends, [7]),
            "s": pa.DictionaryArray.from_arrays(zeros, [TEXT]),
            "l": pa.ListViewArray.from_arrays(zeros, lengths, pa.array(range(10))),
            "v": pa.nulls(ROWS),
        }
    )


@each("as_stream", [True, False])
def test_pieces_have_the_size_of_what_they_become(as_stream: bool) -> None:
    batch = repeated()
    rows = RowStream(batch.schema, iter([batch])) if as_stream else pa.Table.from_batches([batch])
    normaliser = Normaliser(SCHEMA, ["id"])
    with Pieces.set(piece_bytes=PIECE):
        pieces = list(normalised(rows, normaliser.upserts, PIECE, normaliser.row_bytes))
    assert max(piece.nbytes for piece in pieces) <= 1.5 * PIECE
    assert min(piece.num_rows for piece in pieces) > 5
    written = pa.Table.from_batches(pieces).select(SCHEMA.names)
    assert written.num_rows == ROWS
    assert written.slice(ROWS - 1).to_pylist() == [
        {"id": 7, "s": TEXT, "l": list(range(10)), "v": None}
    ]


@each("store_schema", [True, False])
def test_rows_of_parquet_are_read_by_the_longest_value_of_a_dictionary(
    tmp_path: Path, store_schema: bool
) -> None:
    rng = random.Random(seed := random.randrange(2**32))
    texts = [TEXT * 10, "", "b", None]
    rows = pa.table(
        {
            "id": range(ROWS),
            "s": [rng.choice(texts) for _ in range(ROWS)],
            "b": pa.array([rng.choice(texts) for _ in range(ROWS)]).cast(pa.binary()),
            "l": [[rng.choice(texts)] for _ in range(ROWS)],
            "t": [{"a": rng.choice(texts)} for _ in range(ROWS)],
            "n": [f"{n} is not repeated" for n in range(ROWS)],
        }
    )
    path = tmp_path / "x.parquet"
    pq.write_table(rows, path, row_group_size=900, store_schema=store_schema)
    opened = batches_of(str(path), FileFormat.PARQUET, None, missing=ERROR)
    with ParquetBatches.set(nbytes=50_000), opened as (_, batches):
        read = list(batches)
    assert pa.Table.from_batches(read).to_pylist() == rows.to_pylist(), seed
    assert {len(batch) for batch in read} <= {12, 900 % 12, 200 % 12}, seed
    with batches_of(str(path), FileFormat.PARQUET, None, missing=ERROR) as (_, batches):
        assert [len(batch) for batch in batches] == [900, 900, 200]


def test_calls_that_hold_all_rows_refuse_those_that_only_seem_small(
    uri: str, tmp_path: Path
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, repeated().schema) as sink:
        sink.write_batch(repeated())
    with table.writer() as writer, WholeRows.set(nbytes=PIECE):
        calls = (
            lambda: writer.insert(path),
            lambda: writer.upsert(path, when="t.s <> s.s"),
            lambda: writer.delete(path),
        )
        for call in calls:
            with pytest.raises(InvalidCallError, match=rf"{ROWS} rows of .* make several calls"):
                call()
        assert writer.upsert(path).rows == ROWS


FORMATS = [(new, how) for new in (pa.ipc.new_file, pa.ipc.new_stream) for how in ("lz4", "zstd")]


@each("new, compression", FORMATS)
def test_a_batch_that_is_far_larger_than_its_bytes_is_refused(
    tmp_path: Path, new: Any, compression: str
) -> None:
    rows = pa.table({"id": range(ROWS), "s": [TEXT] * ROWS, "n": pa.nulls(ROWS, pa.string())})
    rows = rows.append_column("d", rows["s"].dictionary_encode())
    path = tmp_path / "x.arrow"
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as file, new(file, rows.schema, options=options) as sink:
        sink.write_table(rows, max_chunksize=900)

    def read() -> pa.Table:
        with batches_of(str(path), FileFormat.ARROW, None, missing=ERROR) as (_, batches):
            return pa.Table.from_batches(list(batches))

    assert read().equals(rows)
    with WholeRows.set(nbytes=80_000, times=1_000):
        assert read().equals(rows)
    said = "decompressed: write the file in smaller batches"
    with WholeRows.set(nbytes=80_000, times=2), pytest.raises(InvalidCallError, match=said):
        read()


def test_a_file_for_which_memory_does_not_suffice_is_refused(tmp_path: Path) -> None:
    path, said = tmp_path / "x.parquet", r"x\.parquet: .* memory: .*batches"
    for error in (MemoryError(), pa.lib.ArrowMemoryError("malloc of size 9 failed")):
        error.add_note("the first 7 rows of this call are written")
        with pytest.raises(InvalidCallError, match=said) as caught, named_file(path):
            raise error
        assert caught.value.__notes__ == ["the first 7 rows of this call are written"]
        with pytest.raises(MemoryError), named_file(repeated()):
            raise error


def test_extension_types_and_views_of_a_file_become_plain_columns(uri: str, tmp_path: Path) -> None:
    table = mw.create_table(uri, SCHEMA.append(pa.field("u", pa.binary(16))), "id")
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as file:
        batch = repeated().append_column("u", pa.array([b"u" * 16] * ROWS, pa.uuid()))
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
    with table.writer() as writer:
        assert writer.upsert(tmp_path / "x.arrow").rows == ROWS
    row = {"id": 7, "s": TEXT, "l": list(range(10)), "v": None, "u": b"u" * 16}
    assert table.to_arrow().to_pylist() == [row]
