"""Bad input and faults, through the public surface (issue "Bad input and faults").

Each is a typed error that names the value and the remedy, and leaves the table as it was.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.errors import (
    CorruptFileError,
    FencedError,
    InvalidCallError,
    MemWalError,
    NotFoundError,
    ReopenError,
    RepairError,
    StoreUnavailableError,
    TableReplacedError,
    UnknownFormatError,
)
from memwal_sql.storage.paths import bloom_filter_path, generation_folder, manifest_path, wal_path
from memwal_sql.storage.region_manifest import FlushedGeneration, encode_manifest
from tests.folder_state import folder_state
from tests.model.merging import manifests, merge_one
from tests.model.process import as_another_process

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("small", pa.int8()),
        pa.field("text", pa.string()),
        pa.field("must", pa.float64(), False),
    ]
)


def _rows(*ids: int, text: str = "x") -> pa.Table:
    count = len(ids)
    return pa.table(
        {"id": ids, "small": [1] * count, "text": [text] * count, "must": [0.5] * count},
        schema=SCHEMA,
    )


def _texts(table: Any, **how: Any) -> dict[int, str]:
    rows = table.scan(**how).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.fixture
def table(uri: str) -> Iterator[Any]:
    """Keys 0 to 2 in the base table."""
    lance.write_dataset(_rows(0, 1, 2), uri)
    yield mw.enable(uri, primary_key="id")


@contextmanager
def _refused(uri: str, *words: str, kind: type[MemWalError] = InvalidCallError) -> Iterator[None]:
    """The block raises `kind` with all these words, and changes no file of the table."""
    before = folder_state(uri)
    with pytest.raises(kind) as caught:
        yield
    message = str(caught.value)
    for word in words:
        assert word.lower() in message.lower(), f"{word!r} is not in: {message}"
    assert folder_state(uri) == before, "something was written"


# Rows


BAD_UPSERTS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "wrong type": (
        lambda: _rows(5).set_column(0, "id", pa.array(["five"])),
        ("'id'", "int64", "string"),
    ),
    "a value that would change": (
        lambda: _rows(5).set_column(0, "id", pa.array([5.5])),
        ("'id'", "5.5"),
    ),
    "a value out of range": (
        lambda: _rows(5).set_column(1, "small", pa.array([300], pa.int64())),
        ("'small'", "300"),
    ),
    "no key column": (lambda: _rows(5).drop_columns(["id"]), ("primary key", "'id'")),
    "no required column": (lambda: _rows(5).drop_columns(["must"]), ("'must'", "missing")),
    "an unknown column": (
        lambda: _rows(5).append_column("extra", pa.array([1])),
        ("extra", "small"),
    ),
    "a null key": (
        lambda: pa.table({"id": pa.array([5, None], pa.int64()), "must": [1.0, 2.0]}),
        ("'id'", "row 1", "null"),
    ),
    "a null in a required column": (
        lambda: pa.table({"id": [5, 6], "must": [1.0, None]}),
        ("'must'", "row 1", "null"),
    ),
    "a column twice": (
        lambda: pa.table(
            [pa.array([1]), pa.array([2]), pa.array([0.5])], names=["id", "id", "must"]
        ),
        ("id",),
    ),
    "no rows at all": (lambda: 17, ("int", "table")),
    "a string": (lambda: "id", ("str",)),
    "columns of different length": (lambda: {"id": [1, 2], "must": [0.5]}, ("equally long",)),
    "a Python fraction": (lambda: {"id": [1.2, 1.7], "must": [2.9, 3.9]}, ("'id'", "1.2")),
    "a Python value of another type": (lambda: [{"id": "five", "must": 0.5}], ("'id'", "five")),
}


@pytest.mark.parametrize("case", BAD_UPSERTS)
@pytest.mark.parametrize("durable", [True, False])
def test_bad_rows_are_refused_whole(table: Any, uri: str, case: str, durable: bool) -> None:
    make, words = BAD_UPSERTS[case]
    with table.writer(durable=durable) as writer:
        writer.upsert(_rows(1, text="before"))
        writer.flush()
        with _refused(uri, *words):
            writer.upsert(make())
        assert _texts(table) == {0: "x", 1: "before", 2: "x"}
        writer.upsert(_rows(2, text="after"))  # the writer goes on
        assert _texts(table) == {0: "x", 1: "before", 2: "after"}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (pa.table({"other": [1]}), ("id", "other")),
        (pa.table({"id": pa.array([None], pa.int64())}), ("id", "null")),
        (pa.table({"id": ["one"]}), ("id", "string")),
        (["one"], ("'one'", "id", "int64")),
        ([(1, 2)], ("(1, 2)",)),
        ([None], ("null", "id")),
        ([1.5], ("1.5", "id")),
        ([2**70], (str(2**70), "id")),
        ({"id": 1}, ("'id'", "1", "list")),
        (True, ("True", "id")),
    ],
    ids=[
        "no key column",
        "null",
        "strings",
        "text",
        "tuple",
        "None",
        "fraction",
        "too large",
        "no list",
        "bool",
    ],
)
def test_bad_keys_are_refused_by_delete_and_get(
    table: Any, uri: str, keys: Any, words: tuple[str, ...]
) -> None:
    with table.writer() as writer:
        writer.upsert(_rows(7))
        writer.flush()
        with _refused(uri, *words):
            writer.delete(keys)
        with _refused(uri, *words):
            table.get(keys)
        assert 7 in _texts(table)


def test_a_composite_key_of_the_wrong_length_is_refused(uri: str) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    table = mw.create_table(uri, schema, primary_key=["a", "b"])
    for keys in ([1], [(1,)], [(1, "x", 2)]):
        with _refused(uri, repr(keys[0]), "'a'", "'b'"):
            table.get(keys)


def test_the_last_of_duplicate_keys_in_a_batch_wins(table: Any) -> None:
    with table.writer() as writer:
        batch = pa.concat_tables([_rows(1, text="first"), _rows(5), _rows(1, text="last")])
        writer.upsert(batch)
        assert _texts(table) == {0: "x", 1: "last", 2: "x", 5: "x"}
        writer.flush()
        assert _texts(table) == {0: "x", 1: "last", 2: "x", 5: "x"}
        assert table.get([1, 1])["text"].to_pylist() == ["last"]


@pytest.mark.parametrize(
    "empty", [lambda: SCHEMA.empty_table(), list, lambda: {"id": [], "must": []}]
)
def test_empty_batches_do_nothing(table: Any, uri: str, empty: Callable[[], Any]) -> None:
    with table.writer() as writer:
        result = writer.upsert(empty())
        assert result.rows == 0
        assert writer.delete([]).rows == 0
        writer.flush()
        assert _texts(table) == {0: "x", 1: "x", 2: "x"}
    assert table.get([]).num_rows == 0


# Tables


BAD_KEYS = {
    "none": ([], ("primary key",)),
    "unknown": ("nope", ("nope", "id")),
    "twice": (["id", "id"], ("twice",)),
    "float": ("must", ("must", "double")),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_a_table_needs_a_usable_primary_key(uri: str, case: str) -> None:
    key, words = BAD_KEYS[case]
    with _refused(uri, *words):
        mw.create_table(uri, SCHEMA, primary_key=key)
    lance.write_dataset(_rows(1), uri)
    with _refused(uri, *words):
        mw.enable(uri, primary_key=key)


def test_a_nested_primary_key_is_refused(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.list_(pa.int64()))])
    with _refused(uri, "'id'", "list"):
        mw.create_table(uri, schema, primary_key="id")


def test_enable_without_a_primary_key_says_how_to_give_one(uri: str) -> None:
    lance.write_dataset(_rows(1), uri)
    with _refused(uri, "primary_key"):
        mw.enable(uri)


def test_reserved_and_repeated_column_names_are_refused(uri: str) -> None:
    for name in ("_tombstone", "_rowaddr"):
        schema = pa.schema([pa.field("id", pa.int64()), pa.field(name, pa.bool_())])
        with _refused(uri, name, "reserved"):
            mw.create_table(uri, schema, primary_key="id")
    twice = pa.schema([pa.field("id", pa.int64()), pa.field("id", pa.int64())])
    with _refused(uri, "id"):
        mw.create_table(uri, twice, primary_key="id")


def test_a_uri_that_is_no_table_is_refused(tmp_path: Path, uri: str) -> None:
    with _refused(uri, uri, "create_table"):
        mw.open_table(uri)
    with _refused(uri, uri, "create_table"):
        mw.enable(uri, primary_key="id")
    assert not Path(uri).exists()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "note.txt").write_text("not a table")
    with _refused(str(folder), str(folder)):
        mw.open_table(folder)
    file = tmp_path / "file"
    file.write_text("not a table")
    with pytest.raises(MemWalError, match=re.escape(str(file))):
        mw.open_table(file)


def test_a_lance_table_without_a_memwal_index_says_how_to_get_one(uri: str) -> None:
    lance.write_dataset(_rows(1), uri)
    with _refused(uri, uri, "enable"):
        mw.open_table(uri)


def test_a_table_is_made_once(table: Any, uri: str) -> None:
    with _refused(uri, uri, "open_table"):
        mw.create_table(uri, SCHEMA, primary_key="id")
    with _refused(uri, uri, "open_table"):
        mw.enable(uri, primary_key="id")


def test_enable_refuses_duplicate_keys_and_says_which(uri: str) -> None:
    lance.write_dataset(_rows(3, 41, 5, 41), uri)
    with _refused(uri, "41", "more than once"):
        mw.enable(uri, primary_key="id")
    with pytest.raises(InvalidCallError):
        mw.open_table(uri)


def test_enable_refuses_null_keys(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])
    lance.write_dataset(pa.table({"id": [1, None], "v": [1, 2]}, schema=schema), uri)
    with _refused(uri, "null", "'id'"):
        mw.enable(uri, primary_key="id")


BAD_REGIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "not of the key": (lambda: [mw.bucket("text", 4)], ("text", "primary key")),
    "an unknown column": (lambda: [mw.identity("nope")], ("nope",)),
    "no buckets": (lambda: [mw.bucket("id", 0)], ("0",)),
    "a random expression": (
        lambda: [mw.expression("col0 + CAST(random() * 1000000000 AS BIGINT)", "id")],
        ("random",),
    ),
    "the time": (
        lambda: [mw.expression("CAST(now() AS BIGINT) + col0 * 0", "id")],
        ("now",),
    ),
    "no SQL": (lambda: [mw.expression("col0 +* 1", "id")], ("col0 +* 1",)),
    "another result type": (
        lambda: [mw.expression("col0 % 3", "id", result_type="utf8")],
        ("string", "cast"),
    ),
    "year of a number": (lambda: [mw.year("id")], ("year", "id")),
    "the same field twice": (lambda: [mw.identity("id"), mw.identity("id")], ("id",)),
}


@pytest.mark.parametrize("case", BAD_REGIONS)
def test_bad_region_specs_are_refused(uri: str, case: str) -> None:
    """Protocol rules 10 and 12."""
    make, words = BAD_REGIONS[case]
    with _refused(uri, *words):
        mw.create_table(uri, SCHEMA, primary_key="id", regions=make())


def test_bad_questions_are_refused(table: Any, uri: str) -> None:
    with _refused(uri, "nope", "strong"):
        table.scan(consistency="nope")
    with _refused(uri, "nope"):
        mw.register(datafusion.SessionContext(), "t", table, consistency="nope")
    with _refused(uri, "nope", "text"):
        table.scan(columns=["nope"])
    with _refused(uri, "nope", "text"):
        table.get([1], columns=["nope"])
    with _refused(uri, "-1"):
        table.scan(limit=-1)
    with _refused(uri, "nope"):
        table.scan(filter="nope > 1").read_all()
    with _refused(uri, "id >"):
        table.scan(filter="id > > 1").read_all()


@pytest.mark.parametrize(
    "options",
    [
        {"durable": "yes"},
        {"memtable_rows": 0},
        {"wal_flush_bytes": -1},
        {"memtable_row": 5},
        {"region": "a"},
    ],
    ids=lambda o: next(iter(o)),
)
def test_bad_writer_options_are_refused(table: Any, uri: str, options: dict[str, Any]) -> None:
    name = next(iter(options))
    with _refused(uri, name):
        table.writer(**options)


def test_a_closed_writer_takes_nothing(table: Any, uri: str) -> None:
    writer = table.writer()
    writer.upsert(_rows(1, text="y"))
    writer.close()
    writer.close()
    with _refused(uri, "closed", kind=ReopenError):
        writer.upsert(_rows(2))
    assert _texts(table)[1] == "y"


def test_a_second_writer_fences_the_first_which_says_who_took_over(table: Any, uri: str) -> None:
    first = table.writer()
    first.upsert(_rows(1, text="first"))
    second = mw.open_table(uri).writer()
    second.upsert(_rows(2, text="second"))
    for _ in range(2):
        with _refused(uri, "epoch 2", kind=FencedError):
            first.upsert(_rows(1, text="zombie"))
    with suppress(MemWalError):
        first.close()
    second.close()
    assert _texts(table) == {0: "x", 1: "first", 2: "second"}


# Damaged files


@pytest.fixture
def damaged(table: Any, uri: str) -> Path:
    """A table with a flushed generation and a WAL tail, to be damaged and opened anew."""
    writer = table.writer()
    writer.upsert(_rows(1, 10, text="flushed"))
    writer.flush()
    writer.upsert(_rows(2, 11, text="tail"))
    _alive.append(writer)
    return Path(uri)


_alive: list[Any] = []
WHOLE = {0: "x", 1: "flushed", 2: "tail", 10: "flushed", 11: "tail"}


def _reads_or_names(uri: Path, file: Path) -> None:
    """Every way to read gives the right rows or an error that names the file."""
    with as_another_process():
        for read in (
            lambda t: _texts(t),
            lambda t: {k: _one(t, k) for k in WHOLE},
        ):
            try:
                found = read(mw.open_table(uri))
            except (RepairError, NotFoundError) as error:
                assert file.name in str(error), f"{file.name} is not named in: {error}"
            else:
                assert found == WHOLE, f"{file} is damaged, and wrong rows were read: {found}"


def _one(table: Any, key: int) -> Any:
    return next(iter(table.get([key])["text"].to_pylist()), None)


def _damages(data: bytes) -> Iterator[bytes]:
    step = max(1, len(data) // 40)
    for length in range(0, len(data), step):
        yield data[:length]
    for position in range(0, len(data), step):
        yield data[:position] + bytes([data[position] ^ 0x41]) + data[position + 1 :]
    yield b"\x00" * len(data)
    yield b"garbage" * 20


def _latest(damaged: Path) -> Any:
    (manifest,) = manifests(str(damaged)).values()
    return manifest


def test_a_damaged_region_manifest_is_named_and_never_believed(damaged: Path) -> None:
    latest = _latest(damaged)
    file = damaged / manifest_path(latest.region_id, latest.version)
    whole = file.read_bytes()
    for bad in _damages(whole):
        file.write_bytes(bad)
        _reads_or_names(damaged, file)
    file.write_bytes(whole)
    _reads_or_names(damaged, file)


def test_a_damaged_wal_entry_is_named_and_never_believed(damaged: Path) -> None:
    """Protocol rule 9. The entry is followed by another: truncation is no torn tail."""
    latest = _latest(damaged)
    position = latest.replay_after_wal_entry_position + 1
    file = damaged / wal_path(latest.region_id, position)
    with as_another_process(), mw.open_table(damaged).writer() as writer:
        writer.upsert(_rows(11, text="tail"))
    latest = _latest(damaged)
    if latest.replay_after_wal_entry_position >= position:
        pytest.skip("closing flushed the entry")
    whole = file.read_bytes()
    for bad in _damages(whole):
        file.write_bytes(bad)
        _reads_or_names(damaged, file)
        with pytest.raises(RepairError, match=re.escape(file.name)):
            mw.open_table(damaged).writer().upsert(_rows(1))
    file.write_bytes(whole)
    _reads_or_names(damaged, file)


def test_a_damaged_bloom_filter_is_named_or_loses_no_row(damaged: Path) -> None:
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    file = damaged / bloom_filter_path(latest.region_id, generation.path)
    whole = file.read_bytes()
    for bad in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"\x00", b"garbage"):
        file.write_bytes(bad)
        _reads_or_names(damaged, file)
    file.unlink()
    _reads_or_names(damaged, file)


def test_a_missing_generation_folder_is_an_error_that_names_it(damaged: Path) -> None:
    """Protocol rule 14: never skipped."""
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    shutil.rmtree(damaged / generation_folder(latest.region_id, generation.path))
    with as_another_process():
        for read in (_texts, lambda t: _one(t, 1)):
            with pytest.raises(MemWalError, match=generation.path):
                read(mw.open_table(damaged))


@pytest.mark.parametrize(
    "path", ["../x", "/etc", "..", "0a0b0c0d_gen_1/../../x", "", "0a0b0c0d_gen_7"]
)
def test_a_generation_path_that_leaves_its_folder_is_refused(damaged: Path, path: str) -> None:
    latest = _latest(damaged)
    (old,) = latest.flushed_generations
    file = damaged / manifest_path(latest.region_id, latest.version)
    evil = FlushedGeneration(old.generation, path, old.bytes, old.rows)
    from_file = latest.__class__(
        **{
            **{name: getattr(latest, name) for name in latest.__dataclass_fields__},
            "flushed_generations": (evil,),
        }
    )
    file.write_bytes(encode_manifest(from_file, {}))
    with as_another_process():
        for use in (_texts, lambda t: t.writer().upsert(_rows(1))):
            with pytest.raises(CorruptFileError, match=re.escape(file.name)):
                use(mw.open_table(damaged))


def test_an_unknown_storage_version_is_refused(damaged: Path) -> None:
    (record,) = (damaged / "_memwal_sql").rglob("*.json")
    newer = record.read_text().replace('"format_version": 1', '"format_version": 99')
    assert "99" in newer
    record.write_text(newer)
    with _refused(str(damaged), record.name, "99", kind=UnknownFormatError):
        mw.open_table(damaged)
    record.write_text("{}")
    with _refused(str(damaged), record.name, kind=CorruptFileError):
        mw.open_table(damaged)


# Replaced tables: protocol rule 22


def test_an_overwritten_base_is_refused_and_its_old_regions_give_no_rows(damaged: Path) -> None:
    before = mw.open_table(damaged)
    assert _texts(before) == WHOLE
    lance.write_dataset(_rows(1, 2, text="other"), str(damaged), mode="overwrite")
    with _refused(str(damaged), str(damaged), kind=TableReplacedError):
        mw.open_table(damaged)
    with pytest.raises(TableReplacedError):
        _texts(before)
    with pytest.raises(MemWalError):
        before.get([10])


def test_an_overwritten_and_enabled_base_never_shows_rows_of_the_old_regions(
    damaged: Path,
) -> None:
    lance.write_dataset(_rows(1, 2, text="other"), str(damaged), mode="overwrite")
    with pytest.raises(MemWalError, match="_mem_wal"):
        mw.enable(str(damaged), primary_key="id")


def test_a_base_restored_below_what_was_merged_is_refused(damaged: Path) -> None:
    old = lance.dataset(str(damaged)).version
    (region_id,) = manifests(str(damaged))
    merge_one(str(damaged), region_id, ["id"])
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    shutil.rmtree(damaged / generation_folder(region_id, generation.path))
    file = damaged / manifest_path(region_id, latest.version + 1)
    collected = {name: getattr(latest, name) for name in latest.__dataclass_fields__}
    collected |= {"version": latest.version + 1, "flushed_generations": ()}
    file.write_bytes(encode_manifest(latest.__class__(**collected), {}))
    with as_another_process():
        assert _texts(mw.open_table(damaged)) == WHOLE
        lance.dataset(str(damaged), version=old).restore()
        with pytest.raises(RepairError, match="restored"):
            _texts(mw.open_table(damaged))


# The disk


class _FullStore:
    """A disk that takes no byte more, from a chosen moment on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.full = False

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in ("put", "put_if_absent"):
            return value

        def write(*args: Any) -> Any:
            if self.full:
                raise StoreUnavailableError(f"{args[0]}: {os.strerror(errno.ENOSPC)}")
            return value(*args)

        return write


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(uri: str, table: Any) -> None:
    opened = create.open_store
    made: list[_FullStore] = []

    def open_full(*args: Any, **kwargs: Any) -> Any:
        made.append(_FullStore(opened(*args, **kwargs)))
        return made[-1]

    with patch.object(create, "open_store", open_full):
        small = mw.open_table(uri)
    writer = small.writer()
    writer.upsert(_rows(1, text="before"))
    made[-1].full = True
    with pytest.raises((MemWalError, OSError), match=r"(?i)space|disk"):
        writer.upsert(_rows(2, text="lost"))
    with pytest.raises((MemWalError, OSError)):
        writer.flush()
    with suppress(MemWalError, OSError):
        writer.close()
    made[-1].full = False
    with as_another_process():
        assert _texts(mw.open_table(uri)) == {0: "x", 1: "before", 2: "x"}
    with mw.open_table(uri).writer() as again:
        again.upsert(_rows(2, text="after"))
    assert _texts(mw.open_table(uri)) == {0: "x", 1: "before", 2: "after"}


def test_a_flush_that_lance_can_t_write_loses_nothing(uri: str, table: Any) -> None:
    real = lance.write_dataset

    def no_space(*args: Any, **kwargs: Any) -> Any:
        raise OSError("LanceError(IO): No space left on device (os error 28)")

    writer = table.writer(flush_attempts=1)
    writer.upsert(_rows(1, text="before"))
    with (
        patch.object(lance, "write_dataset", no_space),
        pytest.raises(MemWalError, match=r"(?i)space"),
    ):
        writer.flush()
    assert lance.write_dataset is real
    with suppress(MemWalError):
        writer.close()
    assert _texts(mw.open_table(uri))[1] == "before"
    with mw.open_table(uri).writer() as again:
        again.upsert(_rows(2, text="after"))
        again.flush()
    assert _texts(mw.open_table(uri)) == {0: "x", 1: "before", 2: "after"}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_really_fills_up_loses_no_acknowledged_row(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount here")
    try:
        uri = str(disk / "table")
        table = mw.create_table(uri, SCHEMA, primary_key="id")
        writer = table.writer(memtable_rows=100)
        acknowledged: dict[int, str] = {}
        key = 0
        with pytest.raises((MemWalError, OSError), match=r"(?i)space|disk|full"):
            while key < 5_000:
                text = f"{key:06d}" * 500
                writer.upsert(_rows(key, text=text))
                acknowledged[key] = text
                key += 1
        with suppress(MemWalError, OSError):
            writer.close()
        assert key > 10
        found = _texts(mw.open_table(uri))
        extra = {key: text for key, text in found.items() if key not in acknowledged}
        assert {k: v for k, v in found.items() if k in acknowledged} == acknowledged
        assert len(extra) <= 1  # the write whose fate the error called unknown
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may write anywhere; nobody may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder_can_be_read_and_refuses_writes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        uri = str(Path(folder) / "table")
        lance.write_dataset(_rows(0, 1, 2), uri)
        table = mw.enable(uri, primary_key="id")
        with table.writer() as writer:
            writer.upsert(_rows(1, text="flushed"))
            writer.flush()
        for path in [Path(uri), *Path(uri).rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = folder_state(uri)
        with _as_nobody():
            assert _texts(mw.open_table(uri)) == {0: "x", 1: "flushed", 2: "x"}
            with pytest.raises((MemWalError, OSError), match=r"(?i)permission|read-only"):
                mw.open_table(uri).writer().upsert(_rows(1))
            with pytest.raises((MemWalError, OSError), match=r"(?i)permission|read-only"):
                mw.create_table(str(Path(folder) / "new"), SCHEMA, primary_key="id")
        assert folder_state(uri) == before
        for path in [Path(uri), *Path(uri).rglob("*")]:
            path.chmod(0o755)


# Credentials

SECRET = "wJalrXUtnFEMI-SECRET-bPxRfiCYEXAMPLEKEY"


def _everything_said(error: BaseException) -> str:
    said = []
    seen: BaseException | None = error
    while seen is not None:
        said += [str(seen), repr(seen), repr(seen.args)]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(said)


def test_credentials_are_in_no_error_log_or_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    options = {
        "aws_access_key_id": "AKIDSECRET",
        "aws_secret_access_key": SECRET,
        "aws_session_token": SECRET,
        "aws_region": "us-east-1",
        "aws_endpoint": "http://127.0.0.1:9",
        "allow_http": "true",
        "timeout": "1s",
        "connect_timeout": "1s",
        "client_max_retries": "0",
        "max_retries": "0",
    }
    said = ""
    for uri in ("memory://secret-table", str(tmp_path / "t"), "s3://bucket/table"):
        for call in (
            lambda uri=uri: mw.open_table(uri, storage_options=options),
            lambda uri=uri: mw.create_table(uri, SCHEMA, primary_key="id", storage_options=options),
        ):
            with pytest.raises(Exception) as caught:
                call()
            said += _everything_said(caught.value)
    said += caplog.text + "".join(capfd.readouterr())
    assert SECRET not in said and "AKIDSECRET" not in said


def test_credentials_are_in_no_repr_and_no_plan(table: Any, uri: str) -> None:
    from_context = table._context
    with_secret = from_context.__class__(
        **{
            **{name: getattr(from_context, name) for name in from_context.__dataclass_fields__},
            "storage_options": {"aws_secret_access_key": SECRET},
        }
    )
    secret = mw.Table(with_secret, lance.dataset(uri))
    session = datafusion.SessionContext()
    mw.register(session, "t", secret)
    said = [repr(secret), str(secret), repr(with_secret), repr(secret.snapshot("manifest"))]
    said += [
        str(session.sql(sql).to_arrow_table().to_pydict())
        for sql in ("EXPLAIN SELECT * FROM t", "EXPLAIN SELECT * FROM t WHERE id = 1")
    ]
    assert SECRET not in "\n".join(said)
