"""Files that were damaged, went or were replaced: every read gives the right rows or an error that
names the file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

import memwal_sql as mw
from memwal_sql.errors import (
    CorruptFileError,
    MemWalError,
    NotFoundError,
    RepairError,
    TableReplacedError,
)
from memwal_sql.storage.base.memwal_index import INDEX_NAME, commit_details, read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import bloom_filter_path, generation_folder, manifest_path, wal_path
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.region.manifest import encode_manifest
from memwal_sql.storage.region.seal import seal_manifest
from memwal_sql.table import writing
from tests.each import each
from tests.model.folder_state import folder_state
from tests.model.merging import manifests
from tests.model.process import as_another_process
from tests.model.small_rows import make_rows, refused, texts_of
from tests.model.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def damaged(table: Any, uri: str) -> Path:
    """A table with a flushed generation and a WAL tail, to be damaged and opened anew."""
    writer = table.writer()
    writer.upsert(make_rows(1, 10, text="flushed"))
    writer.flush()
    writer.upsert(make_rows(2, 11, text="tail"))
    _alive.append(writer)
    return Path(uri)


_alive: list[Any] = []
WHOLE = {0: "x", 1: "flushed", 2: "tail", 10: "flushed", 11: "tail"}


def _reads_or_names(uri: Path, file: Path) -> None:
    """Every way to read gives the right rows or an error that names the file."""
    with as_another_process():
        for read in (
            lambda t: texts_of(t),
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
        writer.upsert(make_rows(11, text="tail"))
    latest = _latest(damaged)
    if latest.replay_after_wal_entry_position >= position:
        pytest.skip("closing flushed the entry")
    whole = file.read_bytes()
    for bad in _damages(whole):
        file.write_bytes(bad)
        _reads_or_names(damaged, file)
        with pytest.raises(RepairError, match=re.escape(file.name)):
            mw.open_table(damaged).writer().upsert(make_rows(1))
    file.write_bytes(whole)
    _reads_or_names(damaged, file)


def test_a_damaged_bloom_filter_is_named_or_loses_no_row(damaged: Path) -> None:
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    file = damaged / bloom_filter_path(latest.region_id, generation.path)
    whole = file.read_bytes()
    for bad in (*_damages(whole), b"", whole[:-1], whole + b"\x00", whole * 2, b"garbage"):
        file.write_bytes(bad)
        _reads_or_names(damaged, file)
        with as_another_process(), pytest.raises(CorruptFileError, match=re.escape(file.name)):
            mw.open_table(damaged).get([1])
    file.unlink()
    _reads_or_names(damaged, file)


def test_a_bloom_filter_without_a_checksum_knows_a_key(damaged: Path) -> None:
    """Native code drops the checksum when it commits a manifest of its own."""
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    file = damaged / manifest_path(latest.region_id, latest.version)
    message = pb.RegionManifest.FromString(encode_manifest(latest, {}))
    message.flushed_generations[0].ClearField("bloom_checksum")
    message.ClearField("nonce")
    file.write_bytes(seal_manifest(message.SerializeToString()))
    bloom = damaged / bloom_filter_path(latest.region_id, generation.path)
    _reads_or_names(damaged, bloom)
    bloom.write_bytes(bytes(bloom.stat().st_size))
    with as_another_process(), pytest.raises(CorruptFileError, match=re.escape(bloom.name)):
        mw.open_table(damaged).get([1])


def test_a_missing_generation_folder_is_an_error_that_names_it(damaged: Path) -> None:
    """Protocol rule 14: never skipped."""
    latest = _latest(damaged)
    (generation,) = latest.flushed_generations
    shutil.rmtree(damaged / generation_folder(latest.region_id, generation.path))
    with as_another_process():
        for read in (texts_of, lambda t: _one(t, 1), lambda t: t.count_rows("id > 0")):
            with pytest.raises(RepairError, match=generation.path):
                read(mw.open_table(damaged))


# Replaced tables: protocol rule 22


def test_an_overwritten_base_is_refused_and_its_old_regions_give_no_rows(damaged: Path) -> None:
    before = mw.open_table(damaged)
    assert texts_of(before) == WHOLE
    lance.write_dataset(make_rows(1, 2, text="other"), str(damaged), mode="overwrite")
    with refused(str(damaged), str(damaged), kind=TableReplacedError):
        mw.open_table(damaged)
    with pytest.raises(TableReplacedError):
        texts_of(before)
    with pytest.raises(MemWalError):
        before.get([10])


@pytest.mark.parametrize("how", ["overwritten", "gone"])
def test_a_writer_stops_when_a_flush_finds_that_the_base_was_replaced(
    tmp_path: Path, how: str
) -> None:
    """Every region of it: rows for the others would be durable where nobody reads them."""
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, make_rows().schema, primary_key="id", regions=[mw.identity("id")])
    writer = table.writer()
    writer.upsert(make_rows(1, 2))
    if how == "overwritten":
        lance.write_dataset(make_rows(1, text="other"), uri, mode="overwrite")
    else:
        shutil.rmtree(uri)
    with pytest.raises(TableReplacedError, match=how):
        writer.flush()
    for key in (1, 2):
        with pytest.raises(TableReplacedError, match=how):
            writer.upsert(make_rows(key))
    with pytest.raises(TableReplacedError, match=how):
        writer.delete([1])
    with suppress(TableReplacedError):  # of a region that has told nobody yet
        writer.close()
    with pytest.raises(TableReplacedError, match=how):
        texts_of(table)
    with pytest.raises(TableReplacedError, match=how):
        table.writer().upsert(make_rows(3))


def test_a_background_flush_that_finds_the_base_replaced_stops_the_other_regions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an object store, where writers don't look for it themselves."""
    monkeypatch.setattr(writing, "check_base", lambda table: None)
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, make_rows().schema, primary_key="id", regions=[mw.identity("id")])
    writer = table.writer(memtable_rows=2)
    writer.upsert(make_rows(1, 2))
    lance.write_dataset(make_rows(1, text="other"), uri, mode="overwrite")
    writer.upsert(make_rows(1))
    eventually(lambda: not writer.usable)  # MemTables are full, and flushed in the background
    with pytest.raises(TableReplacedError, match="overwritten"):
        writer.upsert(make_rows(1))
    with pytest.raises(TableReplacedError, match="overwritten"):
        writer.upsert(make_rows(2))
    with suppress(TableReplacedError):  # of a region that has told nobody yet
        writer.close()


def overwritten(uri: str) -> None:
    lance.write_dataset(make_rows(1, text="other"), uri, mode="overwrite")


def without_index(uri: str) -> None:
    lance.dataset(uri).drop_index(INDEX_NAME)


def with_another_index(uri: str) -> None:
    dataset = lance.dataset(uri)
    details = read_details(open_store(uri), dataset)
    assert details is not None
    commit_details(dataset, replace(details.details, writer_config_defaults={}))


def gone(uri: str) -> None:
    shutil.rmtree(uri)


def made_again(uri: str) -> None:
    gone(uri)
    mw.create_table(uri, make_rows().schema, primary_key="id").close()


def made_by_lance(uri: str) -> None:
    gone(uri)
    overwritten(uri)


def by_transaction(table: Any) -> None:
    with mw.transaction(table) as transaction:
        transaction.upsert(table, make_rows(5))


WRITES: list[Callable[[Any, Any], object]] = [
    lambda writer, table: writer.upsert(make_rows(1)),
    lambda writer, table: writer.upsert(make_rows(1).to_reader(1)),
    lambda writer, table: writer.upsert(make_rows(1, 2), atomic=True),
    lambda writer, table: writer.upsert(make_rows(1), set={"text": "s.text"}),
    lambda writer, table: writer.insert(make_rows(7)),
    lambda writer, table: writer.delete([1]),
    lambda writer, table: writer.delete_where("id = 1"),
    lambda writer, table: writer.apply(make_rows(1).append_column("_op", [["upsert"]])),
    lambda writer, table: table.insert(make_rows(1), table.schema),
    lambda writer, table: by_transaction(table),
]


@each(
    "replace_it, kind",
    [
        (overwritten, TableReplacedError),
        (without_index, TableReplacedError),
        (with_another_index, RepairError),
        (gone, TableReplacedError),
        (made_again, MemWalError),
        (made_by_lance, MemWalError),
    ],
)
def test_an_open_writer_acknowledges_nothing_after_its_base_was_replaced(
    tmp_path: Path, replace_it: Callable[[str], None], kind: type[MemWalError]
) -> None:
    """Protocol rule 22: acknowledged rows would be in a log that nobody reads."""
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, make_rows().schema, primary_key="id")
    for durable in (True, False):
        writer = table.writer(durable=durable)
        writer.upsert(make_rows(1, 2))
        if durable:
            writer.close()
            continue
        writer.sync()
        replace_it(uri)
        before = folder_state(Path(uri))
        for write in WRITES:
            with pytest.raises(kind):
                write(writer, table)
        with suppress(MemWalError):
            writer.close()
        assert folder_state(Path(uri)) == before


def test_a_writer_goes_on_after_a_restore_of_the_version_before(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, make_rows().schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(make_rows(1))
        version = lance.dataset(uri).version
        overwritten(uri)
        with pytest.raises(TableReplacedError, match="overwritten"):
            writer.upsert(make_rows(2, text="refused"))
        lance.dataset(uri, version=version).restore()
        writer.upsert(make_rows(2, text="taken"))
    assert texts_of(mw.open_table(uri)) == {1: "x", 2: "taken"}


def test_an_overwritten_and_enabled_base_never_shows_rows_of_the_old_regions(
    damaged: Path,
) -> None:
    lance.write_dataset(make_rows(1, 2, text="other"), str(damaged), mode="overwrite")
    with pytest.raises(MemWalError, match="_mem_wal"):
        mw.enable(str(damaged), primary_key="id")
