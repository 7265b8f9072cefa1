"""Tables made on object stores: in a temporary folder, then put side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.errors import MemWalError
from memwal_sql.storage.objects.local import LocalStore
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.s3 import Requests, s3_server
from tests.write.hooked_store import Call, HookedStore

SCHEMA = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("body", pa.string())])
KEY = ["tenant", "id"]
ROWS = {"tenant": ["a", "b"], "id": [1, 2], "body": ["x", "y"]}


@pytest.fixture
def uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> str:
    """A folder that is taken for an object store."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(LocalStore, "remote", True)
    return str(tmp_path / "table")


def made_over(uri: str, around: Callable[[Any], Any]) -> mw.Table:
    opened = create.open_store
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create, "open_store", lambda *a, **k: around(opened(*a, **k)))
        return mw.create_table(uri, SCHEMA, KEY, regions=[mw.bucket("id", 2)])


def check_usable(uri: str) -> None:
    with mw.open_table(uri).writer() as writer:
        writer.upsert(ROWS)
        writer.flush()
    table = mw.open_table(uri)
    assert table.merge() >= 1
    assert table.count_rows() == 2
    assert table.check().ok
    assert lance.dataset(uri).count_rows() == 2
    names = {index.name for index in lance.dataset(uri).describe_indices()}
    assert {"tenant_idx", "id_idx"} <= names


def test_requests_of_making_a_table() -> None:
    seen = Requests()
    with s3_server("making", around=seen.around) as options:
        mw.create_table("s3://making/first", SCHEMA, "id", storage_options=options)
        seen.take()
        mw.create_table("s3://making/second", SCHEMA, "id", storage_options=options)
        requests = seen.take()
        assert len(requests) <= 15, requests
        check = mw.open_table("s3://making/second", storage_options=options).check()
        assert check.ok


def test_versions_are_those_that_lance_would_have_made(uri: str, tmp_path: Path) -> None:
    made_over(uri, lambda store: store)
    assert os.listdir(tmp_path / "scratch") == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalStore, "remote", False)
        mw.create_table(str(tmp_path / "local"), SCHEMA, KEY, regions=[mw.bucket("id", 2)])
    versions = [lance.dataset(one).versions() for one in (uri, tmp_path / "local")]
    assert len({len(one) for one in versions}) == 1
    check_usable(uri)


@pytest.mark.parametrize("kind", [Kind.LOST_REPLY, Kind.TIMEOUT, Kind.LANDED_EXISTS, Kind.REFUSED])
def test_a_store_that_fails_leaves_a_table_or_what_one_is_made_over(uri: str, kind: Kind) -> None:
    for nth in range(1, 7):  # four versions and a record
        place = f"{uri}-{nth}"
        fault = Fault("put_if_absent", kind, nth)
        try:
            made_over(place, lambda store, fault=fault: FaultyStore(store, [fault]))
        except MemWalError:
            assert kind is Kind.REFUSED
            if Path(place, "_versions").is_dir():
                mw.enable(place, KEY, regions=[mw.bucket("id", 2)])
            else:
                mw.create_table(place, SCHEMA, KEY, regions=[mw.bucket("id", 2)])
        check_usable(place)
    assert not fault.fired


@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_what_others_commit_in_between_stays(uri: str, before: int) -> None:
    """The first version is whose comes first, and rows that are written to it are kept."""

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "put_if_absent" and path.startswith("_versions/"):
            hook.commits += 1  # type: ignore[attr-defined]
            if hook.commits == before:  # type: ignore[attr-defined]
                rows = pa.table(ROWS, SCHEMA)
                mode = "create" if before == 1 else "append"
                schema = None if before == 1 else lance.dataset(uri).schema
                lance.write_dataset(rows if schema is None else rows.cast(schema), uri, mode=mode)
        return call()

    hook.commits = 0  # type: ignore[attr-defined]
    if before == 1:
        with pytest.raises(mw.ConflictError, match="made or enabled by somebody else"):
            made_over(uri, lambda store: HookedStore(store, hook))
    else:
        table = made_over(uri, lambda store: HookedStore(store, hook))
        assert table.count_rows() == 2
        assert {one["name"] for one in table.indexes().to_pylist()} >= {"tenant_idx", "id_idx"}
    assert lance.dataset(uri).count_rows() == 2
