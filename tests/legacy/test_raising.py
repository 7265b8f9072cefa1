"""Tables of version 1 take transactions once they are upgraded, and shut its programs out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.errors import FencedError, UnknownFormatError
from memwal_sql.legacy import upgrade as module
from memwal_sql.storage.format_versions import Needs
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records import table as records_of_table
from memwal_sql.storage.records.table import Records
from memwal_sql.table.writing import WrittenTable
from tests.fixtures.archive import unpack
from tests.fixtures.test_earlier_versions import HERE, OURS, ordered
from tests.interop.native import create_native
from tests.model.merging import manifests
from tests.model.process import ProcessKilledError, Switch, _KillableStore, forget_writers
from tests.soak import IS_SOAK

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
KEYS = range(8)
START = dict.fromkeys(KEYS, 100)


def make_old(uri: str) -> mw.Table:
    """A table of version 1 with two regions, merged, flushed and unflushed rows."""
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    store = open_store(uri)
    path = Records(store, "table").path(1)
    kept = {key: json.loads(store.get(path))[key] for key in ("incarnation", "nonce")}
    store.put(path, json.dumps({**kept, "format_version": 1}).encode())
    table = mw.open_table(uri)
    with table.writer() as writer:
        for value in (1, 2, 100):
            writer.upsert({"id": KEYS, "v": [value] * len(KEYS)})
            if value < 100:
                writer.flush()
            if value < 2:
                table.merge()
    forget_writers(uri)
    return mw.open_table(uri)


@pytest.fixture
def old(fast_folder: Path) -> mw.Table:
    return make_old(str(fast_folder / "accounts"))


def values(table: mw.Table) -> dict[int, int]:
    return dict(zip(*table.to_arrow().to_pydict().values(), strict=True))


def transfer(table: mw.Table) -> None:
    """A transaction, and a statement, over all regions."""
    with mw.transaction(table) as tx:
        tx.sql("UPDATE accounts SET v = v - 5 WHERE id = 0")
        tx.sql("UPDATE accounts SET v = v + 5 WHERE id > 0 AND id < 2")
    with table.writer() as writer:
        writer.update({"v": "v + 1"})


TRANSFERRED = {key: value + 1 for key, value in (START | {0: 95, 1: 105}).items()}


def refuse_version_2(uri: str, needs: Needs, *, writes: bool) -> None:
    if needs.reader > 1:
        raise UnknownFormatError(f"{uri} is to be read by format version {needs.reader} or newer")


as_version_1 = patch.object(records_of_table, "check_needs", refuse_version_2)


def test_an_upgraded_table_takes_transactions(old: mw.Table) -> None:
    for call in (lambda: mw.transaction(old), lambda: transfer(mw.open_table(old.uri))):
        with pytest.raises(mw.UnsupportedError, match=r"memwal upgrade.*open the table again"):
            call()
    new = mw.upgrade(old.uri)
    assert values(new) == values(old) == START
    transfer(new)
    assert values(new) == values(mw.open_table(old.uri)) == values(old) == TRANSFERRED
    assert mw.history(new).num_rows == 2
    assert new.overview().format_version == 2
    assert new.check().ok
    versions = Records(open_store(old.uri), "table").versions(), lance.dataset(old.uri).version
    assert values(mw.upgrade(old.uri)) == TRANSFERRED  # nothing is left to do
    assert versions == (
        Records(open_store(old.uri), "table").versions(),
        lance.dataset(old.uri).version,
    )


@pytest.mark.parametrize("name", [name for name in OURS if "older" not in name])
def test_tables_of_0_1_0_are_upgraded(name: str, tmp_path: Path) -> None:
    fixture = unpack(HERE / name, tmp_path)
    table = mw.upgrade(fixture.uri, storage_options=fixture.options)
    assert table.context.takes_transactions
    rows = fixture.rows["strong"].to_pylist()
    assert ordered(table.scan().read_all(), fixture.primary_key) == rows
    if "manual" not in name:
        with mw.transaction(table) as tx:
            tx.upsert(table, pa.Table.from_pylist(rows[:1], table.schema))
        assert ordered(table.scan().read_all(), fixture.primary_key) == rows
    assert table.check().ok


# They did not look at the base table before each write.
@patch.object(WrittenTable, "_check_base", lambda table: None)
def test_programs_of_version_1_are_refused_or_fenced(old: mw.Table) -> None:
    """Readers at their next query; writers that have claimed regions, and those that have not."""
    reader, idle = mw.open_table(old.uri), mw.open_table(old.uri).writer(turns=False)
    with as_version_1:
        assert values(mw.open_table(old.uri)) == START
        claimed = old.writer(turns=False)
        claimed.upsert({"id": KEYS, "v": list(START.values())})
    claims = {region: manifest.writer_epoch for region, manifest in manifests(old.uri).items()}
    forget_writers(old.uri)
    new = mw.upgrade(old.uri)
    for region, manifest in manifests(old.uri).items():
        assert manifest.writer_epoch > claims[region]
    row = {"id": [0], "v": [0]}
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: mw.open_table(old.uri), UnknownFormatError),
        (lambda: values(reader), UnknownFormatError),
        (lambda: reader.get([1]), UnknownFormatError),
        (lambda: claimed.upsert(row), FencedError),
        (lambda: claimed.flush(), FencedError),
        (lambda: idle.upsert(row), UnknownFormatError),
        (lambda: old.writer(), UnknownFormatError),
        (lambda: old.merge(), UnknownFormatError),
    ]
    with as_version_1:
        for number, (call, kind) in enumerate(refused):
            with pytest.raises(kind):
                call()
                pytest.fail(f"call {number} was not refused")
    assert values(new) == START
    transfer(new)
    assert values(new) == TRANSFERRED


def test_a_durable_writer_of_this_version_goes_on(old: mw.Table) -> None:
    with old.writer() as writer:
        writer.upsert({"id": [0], "v": [0]})
        new = mw.upgrade(old.uri)
        writer.upsert({"id": KEYS, "v": list(START.values())})
        transfer(new)
    assert values(new) == TRANSFERRED


def test_whatever_step_is_the_last_another_upgrade_ends_it(
    old: mw.Table, fast_folder: Path
) -> None:
    """A process dies after each change of the store, in a soak also before it, and nobody begins a
    transaction."""
    copied, steps = fast_folder / "copy", 0
    for before in (True, False) if IS_SOAK else (False,):
        for change in range(1, 100):
            shutil.copytree(old.uri, copied / "accounts")
            uri, switch = str(copied / "accounts"), Switch()

            def killable(*place: Any, switch: Switch = switch) -> Any:
                return _KillableStore(open_store(*place), switch)

            switch.kill_at(change, before=before)
            with (
                patch.object(create, "open_store", killable),
                patch.object(module, "open_store", killable),
            ):
                with suppress(ProcessKilledError):
                    mw.upgrade(uri)
                is_over = not switch._dead
            forget_writers(uri)
            assert values(mw.open_table(uri)) == START
            is_raised = mw.open_table(uri).context.takes_transactions
            assert is_raised is (is_over or _records(uri) == 3)
            if not is_raised:
                with pytest.raises(mw.UnsupportedError, match="memwal upgrade"):
                    mw.transaction(mw.open_table(uri))
            new = mw.upgrade(uri)
            transfer(new)
            assert values(new) == TRANSFERRED
            forget_writers(uri)
            shutil.rmtree(copied)
            if is_over:
                break
            steps += 1
    assert steps > 5


def _records(uri: str) -> int:
    return len(Records(open_store(uri), "table").versions())


def test_what_is_not_upgraded(old: mw.Table, tmp_path: Path) -> None:
    with pytest.raises(mw.InvalidCallError, match="leave out read_wal, primary_key and regions"):
        mw.upgrade(old.uri, primary_key="id")
    native = str(tmp_path / "native")
    create_native(native, pa.table({"id": [1], "v": [1]}, SCHEMA), ["id"], unsharded=True)
    with pytest.raises(mw.InvalidCallError, match="Lance or LanceDB has made it"):
        mw.upgrade(native)
    with pytest.raises(mw.UnsupportedError, match="Lance or LanceDB has made it"):
        mw.transaction(mw.open_table(native))
    assert not mw.open_table(old.uri).context.takes_transactions
