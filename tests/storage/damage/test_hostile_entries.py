"""WAL entries that hold what Arrow would believe: every reader names the file, and none shows rows
that are not there, reads foreign memory or dies.
"""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.evolution.match import FIELD_ID_KEY
from memwal_sql.bulk import stage as staged
from memwal_sql.bulk.rows import RowForm
from memwal_sql.errors import CorruptFileError, RepairError, UnknownFormatError
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import wal_path
from memwal_sql.storage.wal.arrow_stream import read_stream
from memwal_sql.storage.wal.entry import encode_entry
from memwal_sql.storage.wal.log import Wal
from tests.model.merging import manifests
from tests.model.process import as_another_process
from tests.model.writing import session_of
from tests.soak import usual

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("text", pa.string()),
        ("amount", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string())])),
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("vector", pa.list_(pa.float32(), 4)),
    ]
)
ROWS = 3
NATIVE = pa.ipc.IpcWriteOptions()


def _rows(first: int = 10) -> pa.Table:
    count = range(ROWS)
    return pa.table(
        {
            "id": [first + i for i in count],
            "text": [f"text {i}." for i in count],
            "amount": [Decimal("7654321.07")] * ROWS,
            "tags": [["a", "bb", "ccc"]] * ROWS,
            "place": [{"city": "Reykjavik"}] * ROWS,
            "kind": pa.array(["x"] * ROWS).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0, 3.0, 4.0]] * ROWS, pa.list_(pa.float32(), 4)),
        },
        schema=SCHEMA,
    )


def _with(name: str, array: pa.Array) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The batch with another column in the place of the one of this name."""

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        place = batch.schema.get_field_index(name)
        fields, columns = list(batch.schema), list(batch.columns)
        fields[place], columns[place] = fields[place].with_type(array.type), array
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    return changed


def _nullable(name: str, array: pa.Array) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The same with a field that says that it takes nulls."""

    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = _with(name, array)(batch)
        fields = [f.with_nullable(True) for f in batch.schema]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))

    return changed


def _added(name: str, array: pa.Array) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.append_column(name, array)


def _without(name: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.drop_columns([name])


VALUES: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "an index out of its dictionary": _with(
        "kind",
        pa.DictionaryArray.from_arrays(
            pa.array([10**8] * ROWS, pa.int32()), pa.array(["x"]), safe=False
        ),
    ),
    "a key that is null": _with("id", pa.array([1, None, 3], pa.int64())),
    "a key that may be null, and is": _nullable("id", pa.array([1, None, 3], pa.int64())),
    "a tombstone that is null": _nullable("_tombstone", pa.array([False, None, False])),
    "another type of key": _with("id", pa.array(["a", "b", "c"])),
    "another type of value": _with("text", pa.array([1, 2, 3])),
    "another type of tombstone": _with("_tombstone", pa.array(["a", "b", "c"])),
    "a view for a text": _with("text", pa.array(["a"] * ROWS, pa.string_view())),
    "runs for a text": _with(
        "text", pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), pa.array(["a"]))
    ),
    "nulls for a vector": _with("vector", pa.nulls(ROWS, pa.list_(pa.null(), 2**20))),
    "no key": _without("id"),
    "two columns of a name": _added("text", pa.array(["x"] * ROWS)),
}


def _words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


# What of an entry's bytes becomes what, in the columns of `_rows`. One flipped bit does as much.
TEXTS, LISTS, CITIES = _words(0, 7, 14, 21), _words(0, 3, 6, 9), _words(0, 9, 18, 27)
BYTES: dict[str, tuple[bytes, bytes]] = {
    "an offset behind the end": (TEXTS, _words(0, 7000, 14, 21)),
    "offsets far behind the end": (TEXTS, _words(0, 2**30, 2**30 + 1, 2**30 + 2)),
    "an offset below 0": (TEXTS, _words(0, 7, 14 - 2**31, 21)),
    "offsets that go down": (TEXTS, _words(0, 14, 7, 21)),
    "an offset within a character": (b"text 0.", b"text \xc3."),
    "no UTF-8": (b"text 1.", b"text \xff."),
    "no UTF-8 in a list": (b"ccca", b"cc\xffa"),
    "an offset in a list": (_words(0, 1, 3, 6), _words(0, 1, -(2**30), 6)),
    "list offsets behind the end": (LISTS, _words(0, 3, 6000, 9)),
    "an offset in a struct": (CITIES, _words(0, 9, 2**20, 27)),
    "no UTF-8 in a struct": (b"ReykjavikR", b"Reykjavi\x80R"),
    "a decimal with more digits": (struct.pack("<q", 765432107), struct.pack("<q", 2**62)),
}


def resealed(data: bytes) -> bytes:
    """An entry with the checksum of what it holds now, as whoever can write it can compute it."""
    seal = re.search(rb"[0-9a-f]{32}:[0-9a-f]{16}:([0-9a-f]{8})", data)
    if seal is None:
        return data
    blank = b"%016x:%08x" % (0, 0)
    start, end = seal.start() + 33, seal.end()
    digits = b"%016x:%08x" % (len(data), zlib.crc32(data[:start] + blank + data[end:]))
    return data[:start] + digits + data[end:]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a tail of one entry, whose rows are whole."""
    table = mw.create_table(tmp_path_factory.mktemp("t") / "t", SCHEMA, primary_key="id")
    writer = table.writer()
    writer.upsert(_rows())
    writer.flush()
    writer.upsert(_rows(0))
    copy = Path(table.uri).with_name("copy")  # as it is while the writer is open
    shutil.copytree(table.uri, copy)
    return copy


@pytest.fixture
def uri(template: Path, tmp_path: Path) -> str:
    shutil.copytree(template, tmp_path / "t")
    return str(tmp_path / "t")


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _put(
    uri: str,
    change: Callable[[pa.RecordBatch], pa.RecordBatch] = _same,
    *,
    sealed: bool,
    old: bytes = b"",
    new: bytes = b"",
) -> str:
    """Append an entry with changed rows or bytes, as this package or as native code writes it."""
    (manifest,) = manifests(uri).values()
    wal = Wal(open_store(uri), manifest.region_id)
    last = wal.positions()[-1]
    entry = wal.read(last)
    assert entry is not None and entry.batch is not None and entry.generation is not None
    batch = change(entry.batch)
    epoch, generation = entry.writer_epoch, entry.generation
    data = encode_entry(batch, writer_epoch=epoch, generation=generation)
    if not sealed:
        metadata = {"writer_epoch": str(epoch), "generation": str(generation)}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema.with_metadata(metadata), options=NATIVE) as out:
            out.write_batch(batch)
        data = sink.getvalue().to_pybytes()
    if old:
        assert data.count(old) >= 1
        place = data.index(old)
        data = resealed(data[:place] + new + data[place + len(new) :])
    return _put_bytes(uri, data)


def _put_bytes(uri: str, data: bytes) -> str:
    (manifest,) = manifests(uri).values()
    wal = Wal(open_store(uri), manifest.region_id)
    path = wal_path(manifest.region_id, wal.positions()[-1] + 1)
    open_store(uri).put(path, data)
    return path.rpartition("/")[2]


def _sql(table: mw.Table) -> None:
    context = session_of("t", table)
    with mw.memwal_errors():
        context.sql("SELECT * FROM t").to_pylist()


USES: dict[str, Callable[[mw.Table], object]] = {
    "scan": lambda table: table.scan().read_all().to_pylist(),
    "sql": _sql,
    "get": lambda table: table.get([0, 10]).to_pylist(),
    "changes": lambda table: [one.to_pylist() for one in table.changes()],
    "search": lambda table: table.full_text_search("text", "abc").to_pylist(),
    "pin": lambda table: table.pinned_table().snapshot(table.pin()),
    "write": lambda table: table.writer().upsert(_rows(20)),
}


def _refused(uri: str, name: str, kind: type[RepairError] = CorruptFileError) -> None:
    """Every use of the table names the file, and so does the check."""
    with as_another_process():
        for use, call in USES.items():
            with pytest.raises(kind, match=re.escape(name)) as caught:
                call(mw.open_table(uri))
            assert "table.check()" in str(caught.value) or kind is not CorruptFileError, use
        found = mw.open_table(uri).check().findings
        assert any(name in f"{one.where} {one.what}" and one.check == "wal" for one in found)


def _ways(cases: Iterable[str]) -> list[tuple[str, bool]]:
    """All cases as native code writes them, and some, in a soak all, with a seal that fits."""
    names = list(cases)
    return [*((name, False) for name in names), *((name, True) for name in usual(names, 3))]


@pytest.mark.parametrize(("what", "sealed"), _ways(VALUES))
def test_an_entry_whose_values_are_not_what_they_say_is_named(
    uri: str, what: str, sealed: bool
) -> None:
    _refused(uri, _put(uri, VALUES[what], sealed=sealed))


@pytest.mark.parametrize(("what", "sealed"), _ways(BYTES))
def test_an_entry_whose_bytes_are_not_what_they_say_is_named(
    uri: str, what: str, sealed: bool
) -> None:
    old, new = BYTES[what]
    _refused(uri, _put(uri, sealed=sealed, old=old, new=new))


@pytest.mark.parametrize("change", ["none", "tombstones", "dropped column", "dictionary"])
def test_entries_that_are_whole_are_read_the_same_way(uri: str, change: str) -> None:
    changes: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
        "none": _same,
        "tombstones": _with("_tombstone", pa.array([True] * ROWS)),
        "dropped column": lambda batch: batch.append_column(
            pa.field("gone", pa.int8(), metadata={FIELD_ID_KEY: b"99"}), pa.nulls(ROWS, pa.int8())
        ),
        "dictionary": _with("text", pa.array(["x"] * ROWS).dictionary_encode()),
    }
    _put(uri, changes[change], sealed=False)
    with as_another_process():
        for call in USES.values():
            call(mw.open_table(uri))


@pytest.mark.parametrize("name", ["__wal_row_id", "unheard_of"])
def test_a_column_that_no_table_has_had_is_named_with_its_file(uri: str, name: str) -> None:
    """Lance 9150 puts the ids of rows beside them: without a word they would be lost."""
    ids = pa.array([1, 2, 3], pa.uint64())
    added = pa.field(name, pa.uint64(), metadata={FIELD_ID_KEY: b"99"} if "wal" in name else None)
    path = _put(uri, lambda batch: batch.append_column(added, ids), sealed=False)
    _refused(uri, path, UnknownFormatError)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("part", ["rows", "dictionaries"])
def test_a_compressed_body_is_refused_before_it_is_decompressed(
    uri: str, monkeypatch: pytest.MonkeyPatch, codec: str, part: str
) -> None:
    """A few kilobytes may say that they are gigabytes."""
    many = 2_000_000
    columns: dict[str, Any] = {"id": pa.array(np.zeros(many, np.int64))}
    if part == "dictionaries":
        names = pa.array(np.full(many // 100, 7, np.int8).astype("S8").astype(str))
        columns = {"kind": pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), names)}
    batch = pa.record_batch(columns).replace_schema_metadata(
        {"writer_epoch": "1", "generation": "2"}
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as out:
        out.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    with monkeypatch.context() as unopened, pytest.raises(ValueError, match="compressed"):
        unopened.delattr(pa.ipc, "open_stream")
        read_stream(data)
    _refused(uri, _put_bytes(uri, data))
    assert pa.ipc.open_stream(data).read_all().num_rows == batch.num_rows  # it is what Arrow takes


def test_rows_that_have_no_bytes_are_bounded_by_the_file() -> None:
    nulls = pa.record_batch({"a": pa.nulls(10**9)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, nulls.schema) as out:
        out.write_batch(nulls)
    with pytest.raises(ValueError, match="do not fit"):
        read_stream(sink.getvalue().to_pybytes())


def _header_changes(data: bytes) -> Iterator[bytes]:
    """Each word of the headers replaced by extremes."""
    for place in range(0, len(data) - 8, 4):
        for value in (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF):
            size = 8 if value > 0xFFFFFFFF else 4
            yield data[:place] + value.to_bytes(size, "little") + data[place + size :]


def test_whatever_word_of_a_stream_is_wrong_is_an_error_or_changes_values_alone() -> None:
    """As native code writes them, without a checksum: all that is left is Arrow's own checks."""
    rows = pa.record_batch({"a": pa.array(["x", None]), "b": pa.array([["y"], []])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=NATIVE) as out:
        out.write_batch(rows)
    whole = sink.getvalue().to_pybytes()
    refused = 0
    before = pa.total_allocated_bytes()
    for bad in _header_changes(whole):
        try:
            with decoding("a file", "a stream"):
                _, batches = read_stream(bad)
        except CorruptFileError:
            refused += 1
        else:
            for batch, _ in batches:
                batch.to_pylist()
    assert refused > 500 and pa.total_allocated_bytes() - before < 2**20


def test_staged_bytes_are_looked_at_as_entries_are(uri: str) -> None:
    table = mw.open_table(uri)
    to_bytes = staged.to_bytes

    def hostile(rows: pa.Table) -> bytes:
        data = to_bytes(rows)
        assert TEXTS in data
        return data.replace(TEXTS, BYTES["an offset below 0"][1])

    for inline in (0, 2**20):
        with patch.object(staged, "to_bytes", hostile):
            stager = table.stager("job", RowForm(), staged.StageLimits(inline=inline))
            task = stager.stage(_rows(30).to_batches())
        with pytest.raises(CorruptFileError, match=r"run the job again"):
            table.publisher().publish([task])
