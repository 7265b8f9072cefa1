"""A process that reads for days keeps nothing of what merges and other jobs have replaced."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import ref

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.postings.lance_index import LancePartition
from exec_nodes.resident.store import STORE, Key
from exec_nodes.sources.lance_source import LanceSource
from memwal_sql.read.region import Merged
from memwal_sql.state.memtable import MemTable
from tests.model.writing import flush_rows, merge_rows

DIMENSION = 4
ROWS = 300
SCHEMA = pa.schema({"id": pa.int64(), "body": pa.string(), "v": pa.list_(pa.float32(), DIMENSION)})
NO_TIME = timedelta(0)


def rows(step: int) -> pa.Table:
    """All keys, with a word that tells the step."""
    random = np.random.default_rng(step)
    columns = [
        pa.array(range(ROWS)),
        pa.array([f"word{number % 7} step{step}" for number in range(ROWS)]),
        pa.array(random.random((ROWS, DIMENSION)).tolist(), SCHEMA.field("v").type),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def read(table: mw.Table, step: int) -> None:
    found = table.full_text_search("body", f"step{step}", ROWS, columns=["id"])
    assert found.num_rows == ROWS
    assert table.vector_search("v", [0.0] * DIMENSION, 5).num_rows == 5
    assert table.get([3], ["body"])["body"].to_pylist() == [f"word3 step{step}"]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[mw.Table]:
    found = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with found.writer() as writer:
        writer.upsert(rows(0))
        writer.flush()
        found.merge()
        found.create_index("body", "FTS")
        found.create_index("v", "IVF_FLAT", num_partitions=1)
        yield found


def entries(table: mw.Table) -> list[Key]:
    """The keys of what is resident of a table."""
    return [key for key in STORE.all_keys() if table.uri in repr(key)]


def test_versions_index_segments_and_generations_that_are_gone_are_let_go_of(
    table: mw.Table,
) -> None:
    reader = mw.open_table(table.uri)
    kept = []
    for step in range(1, 7):
        flush_rows(table, rows(step))
        read(reader, step)
        table.merge()
        read(reader, step)
        table.build_indexes()
        read(reader, step)
        table.collect_garbage(older_than=NO_TIME, versions_older_than=NO_TIME)
        read(reader, step)
        kept.append(len(entries(table)))
    # Columns that are read in the background come sooner or later.
    assert kept[-1] < 1.5 * kept[1], entries(table)
    segments = {
        segment.uuid
        for index in lance.dataset(table.uri).describe_indices()
        for segment in index.segments
    }
    open_now = {
        key.owners[1]
        for key in STORE.all_keys()
        if key.owners[0] == table.uri and key.kind == "index partition"
    }
    assert open_now and open_now <= segments


def test_rows_that_an_index_holds_now_are_not_kept_tokenized(table: mw.Table) -> None:
    def tokenized() -> int:
        return sum(
            key.kind == "tokenized texts" and table.uri in key.owners for key in STORE.all_keys()
        )

    reader = mw.open_table(table.uri)
    merge_rows(table, rows(1))
    # No generation stands in for the fragment of a base table that others have written, too.
    lance.dataset(table.uri).delete("id = 7")
    assert reader.full_text_search("body", "step1", ROWS).num_rows == ROWS - 1
    assert tokenized() == 1
    table.build_indexes()
    assert reader.full_text_search("body", "step1", ROWS).num_rows == ROWS - 1
    assert tokenized() == 0


def test_generations_that_no_index_lacks_are_let_go_of_before_they_are_collected(
    table: mw.Table, within: Any
) -> None:
    within(Merged.set(kept_open=2))
    reader = mw.open_table(table.uri)
    held = []
    for step in range(1, 6):
        flush_rows(table, rows(step))
        read(reader, step)
        (generation,) = reader.snapshot().regions[0].sources
        held.append(ref(generation.dataset))
        del generation
        table.merge()
        table.build_indexes()
        read(reader, step)
    gc.collect()
    assert [one() is None for one in held] == [True] * 3 + [False] * 2


def test_without_an_index_nothing_of_merged_generations_stays(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "plain", SCHEMA, "id")
    reader = mw.open_table(table.uri)
    merged = []
    for step in range(1, 4):
        flush_rows(table, rows(step))
        read(reader, step)
        (generation,) = reader.snapshot().regions[0].sources
        merged.append(generation.identity)
        del generation
        table.merge()
        reader.catch_up()
        read(reader, step)
    owners = {owner for key in STORE.all_keys() for owner in key.owners}
    assert not owners & {*merged}


def test_a_writer_that_stays_open_keeps_no_version_open(table: mw.Table) -> None:
    found = mw.open_table(table.uri)
    opened = ref(found.tracker.loaded.dataset)
    with found.writer() as writer:
        writer.upsert(rows(1))
        writer.flush()
        table.merge()
        read(found, 1)
        read(found, 1)
        gc.collect()
        assert opened() is None


@pytest.fixture
def no_search_for_cycles() -> Iterator[None]:
    """A process with many objects looks for cycles every few minutes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_search_for_cycles")
def test_what_is_let_go_of_goes_at_once(table: mw.Table) -> None:
    reader = mw.open_table(table.uri)
    read(reader, 0)
    first = reader.snapshot()
    own = [STORE.get(key) for key in STORE.all_keys() if key.owners[0] == table.uri]
    (partition,) = (one for one in own if isinstance(one, LancePartition))
    held = [ref(first.base), ref(first.base.dataset), ref(partition)]
    del first, own, partition
    for step in (1, 2):
        flush_rows(table, rows(step))
        read(reader, step)
        flushed = reader.snapshot().regions[0].sources[0]
        assert isinstance(flushed, LanceSource)
        held += [ref(flushed), ref(flushed.dataset)]
        del flushed
        table.merge()
        table.build_indexes()
        read(reader, step)
        table.collect_garbage(older_than=NO_TIME)
        read(reader, step)
    reader.scan(filter="id = 3").read_all()
    held.append(ref(reader))  # nothing that is remembered of its queries leads back to it
    del reader
    assert [one() for one in held] == [None] * len(held)


@pytest.mark.usefixtures("no_search_for_cycles")
def test_rows_in_memory_go_at_once() -> None:
    memtable = MemTable("a", 1, SCHEMA, ["id"])
    batch = rows(0).append_column(TOMBSTONE_FIELD, pa.repeat(False, ROWS)).to_batches()[0]
    memtable.append(batch)
    source = memtable.snapshot()
    gone = [ref(memtable), ref(source)]
    del memtable, source
    assert [one() for one in gone] == [None, None]


def test_a_memtable_that_was_searched_goes_when_it_is_flushed(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows(1))
        read(table, 1)
        memtable = table.snapshot().regions[0].sources[0]
        gone, identity = ref(memtable), memtable.identity
        writer.flush()
        table.merge()
        read(table, 1)
        del memtable
        gc.collect()
        assert gone() is None
        assert not [key for key in STORE.all_keys() if identity in key.owners]


def test_texts_keep_no_version_of_a_table_open(table: mw.Table) -> None:
    reader = mw.open_table(table.uri)
    read(reader, 0)
    opened = ref(reader.snapshot().base)
    del reader
    gc.collect()
    assert opened() is None
