"""WAL entries and the log they are in."""

from __future__ import annotations

import tracemalloc
import zlib
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.schema import LanceSchema

from memwal_sql.errors import (
    CorruptFileError,
    TornEntryError,
)
from memwal_sql.storage.objects.open import ObjectStore, open_store
from memwal_sql.storage.wal.entry import entry_schema
from memwal_sql.storage.wal.log import Wal, WalEntry, decode_entry, encode_entry, encode_fence
from tests.each import each
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.racing import race

REGION = UUID("6433efc6-ea99-4fb5-9138-e4f3486995b4")
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
SCHEMA = entry_schema(COLUMNS, LanceSchema.from_pyarrow(COLUMNS))


def batch(rows: int = 3) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(range(rows), pa.int64()), pa.array(["x"] * rows), pa.array([False] * rows)],
        schema=SCHEMA,
    )


ENTRY = encode_entry(batch(), writer_epoch=3, generation=2, nonce="ab" * 16)
FENCE = encode_fence(writer_epoch=4, nonce="cd" * 16, skipped=(7, 8))


@pytest.fixture
def store() -> ObjectStore:
    return open_store(f"memory://{uuid4().hex}")


def native_entry(generation: int | None = 1) -> bytes:
    """An entry as native code writes it: without seal, and before Lance 14 without generation."""
    sink = pa.BufferOutputStream()
    named = {} if generation is None else {b"generation": b"%d" % generation}
    schema = SCHEMA.with_metadata({b"writer_epoch": b"1", **named})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch(2))
        writer.write_batch(batch(1))
    return sink.getvalue().to_pybytes()


def test_entries_and_fences_come_back() -> None:
    encoded = encode_entry(batch(), writer_epoch=3, generation=2, nonce="ab" * 16, batch_id="q:1")
    entry = decode_entry(5, encoded, "p")
    assert (entry.position, entry.writer_epoch, entry.generation) == (5, 3, 2)
    assert (entry.nonce, entry.batch_id, entry.is_fence) == ("ab" * 16, "q:1", False)
    assert entry.batch == batch() and entry.batch.schema.equals(SCHEMA, check_metadata=True)
    assert decode_entry(6, FENCE, "p") == WalEntry(
        6, 4, None, None, nonce="cd" * 16, skipped=(7, 8)
    )


def test_the_schema_has_the_metadata_that_native_code_takes_and_no_other() -> None:
    """Protocol rule 2: native refuses rows with metadata that its own MemTable has not."""
    schema = pa.ipc.open_stream(ENTRY).schema
    assert schema.metadata == {b"writer_epoch": b"3", b"generation": b"2"}
    assert schema.field("s").metadata == {b"lance:field_id": b"1"}
    assert schema.names[-1] == "_tombstone" and schema.field("_tombstone").metadata is None
    fence = pa.ipc.open_stream(FENCE).schema
    assert len(fence) == 0 and b"generation" not in fence.metadata
    assert fence.metadata[b"fence_sentinel"] == b"true"


def test_native_entries_without_a_checksum_are_read() -> None:
    entry = decode_entry(1, native_entry(), "p")
    assert entry.nonce is None and entry.batch is not None
    assert entry.batch["id"].to_pylist() == [0, 1, 0]


def test_native_entries_without_a_generation_are_rows() -> None:
    entry = decode_entry(1, native_entry(None), "p")
    assert entry.generation is None and not entry.is_fence
    assert entry.batch is not None and entry.batch["id"].to_pylist() == [0, 1, 0]


@each(
    "fields, metadata",
    [
        ([], {}),
        (COLUMNS, {b"fence_sentinel": b"true"}),
        (COLUMNS, {b"fence_sentinel": b"true", b"generation": b"1"}),
    ],
)
def test_what_is_neither_rows_nor_a_fence_is_damage(fields: Any, metadata: Any) -> None:
    sink = pa.BufferOutputStream()
    schema = pa.schema(fields, {b"writer_epoch": b"1", **metadata})
    with pa.ipc.new_stream(sink, schema):
        pass
    with pytest.raises(CorruptFileError, match="fence"):
        decode_entry(1, sink.getvalue().to_pybytes(), "p")


def test_dictionary_columns_are_kept() -> None:
    rows = pa.record_batch({"d": pa.array(["a", "b", "a"]).dictionary_encode()})
    entry = decode_entry(1, encode_entry(rows, writer_epoch=1, generation=1), "p")
    assert entry.batch is not None and entry.batch["d"].to_pylist() == ["a", "b", "a"]
    assert entry.nonce is not None


@each("data", [ENTRY, FENCE, native_entry()])
def test_every_truncation_is_a_torn_entry(data: bytes) -> None:
    """Protocol rule 9."""
    for length in range(len(data)):
        with pytest.raises(TornEntryError, match="wal/x"):
            decode_entry(1, data[:length], "wal/x")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_other_damage_is_no_torn_entry_and_no_entry(data: st.DataObject) -> None:
    """Protocol rule 9: a flipped bit of an entry with a checksum is an error naming the file."""
    original = data.draw(st.sampled_from([ENTRY, FENCE]))
    at = data.draw(st.integers(0, len(original) - 1))
    damaged = bytearray(original)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptFileError, match="wal/x") as caught:
        decode_entry(1, bytes(damaged), "wal/x")
    assert not isinstance(caught.value, TornEntryError)


def test_the_checksum_is_a_crc_of_the_entry_with_its_digits_blank() -> None:
    start = ENTRY.index(b"ab" * 16 + b":") + 33
    blank = ENTRY[:start] + b"0" * 16 + b":" + b"0" * 8 + ENTRY[start + 25 :]
    expected = b"%016x:%08x" % (len(ENTRY), zlib.crc32(blank))
    assert ENTRY[start : start + 25] == expected


def test_the_log_is_read_in_order_up_to_the_first_free_position(store: ObjectStore) -> None:
    wal = Wal(store, REGION)
    for position in (1, 2, 4):
        assert wal.append(position, encode_fence(writer_epoch=position)).landed
    assert [entry.position for entry in wal.entries(1)] == [1, 2]
    assert wal.positions() == [1, 2, 4]
    assert wal.exists(4) and not wal.exists(3) and wal.read(3) is None


@pytest.mark.parametrize("kind", [Kind.TIMEOUT, Kind.FALSE_EXISTS])
def test_an_append_to_a_taken_position_gives_what_is_there(store: ObjectStore, kind: Kind) -> None:
    """Protocol rule 5: the caller decides what another writer's entry means."""
    assert Wal(store, REGION).append(1, FENCE).landed
    outcome = Wal(FaultyStore(store, [Fault("put_if_absent", kind)]), REGION).append(1, ENTRY)
    assert outcome.existing == decode_entry(1, FENCE, "p") and not outcome.landed


def test_entries_of_equal_rows_are_told_apart(store: ObjectStore) -> None:
    """Protocol rule 3: without a nonce two writers of the same rows both believe they won."""
    entries = [encode_entry(batch(), writer_epoch=3, generation=2) for _ in range(6)]
    landed = race(*(partial(Wal(store, REGION).append, 1, data) for data in entries))
    outcomes = [outcome.landed for outcome in landed]
    assert sorted(outcomes) == [False] * 5 + [True]


def test_an_entry_is_copied_once_when_its_seal_is_filled_in() -> None:
    """Counted by Python's allocator; Arrow's own buffer is as large as the entry."""
    batch = pa.record_batch({"id": range(10), "val": ["x" * 400_000] * 10})
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        data = encode_entry(batch, writer_epoch=1, generation=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(data) > 4_000_000
    assert peak < 1.1 * len(data)
    assert pa.total_allocated_bytes() == before
