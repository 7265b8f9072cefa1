"""The WAL tail of a region whose writer is in another process."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read import region
from memwal_sql.storage import paths
from memwal_sql.storage.local_store import LocalStore
from tests.model.merging import manifests
from tests.model.opened import opened_over

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def rows(version: int) -> pa.Table:
    return pa.table({"id": [1, 2], "v": [version, version]}, schema=SCHEMA)


def test_entries_that_are_flushed_by_now_are_not_read(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    reader = mw.open_table(tmp_path / "t")
    read: list[str] = []
    get = LocalStore.get

    def noted(store: LocalStore, path: str) -> bytes:
        data = get(store, path)
        if "/wal/" in path:
            read.append(path)
        return data

    with (
        patch.object(region, "live_writer", lambda table, region_id: None),
        patch.object(LocalStore, "get", noted),
        table.writer() as writer,
    ):
        writer.upsert(rows(1))
        assert reader.get([1])["v"].to_pylist() == [1]
        assert read, "the row is in the WAL alone"
        for version in range(2, 5):
            writer.upsert(rows(version))
            writer.flush()
        read.clear()
        assert reader.get([1])["v"].to_pylist() == [4]
        assert read == []
        writer.upsert(rows(5))
        assert reader.get([1])["v"].to_pylist() == [5]
        assert len(read) == 1


@pytest.mark.parametrize("how", ["gone", "folder"])
@pytest.mark.parametrize("remote", [False, True])
@pytest.mark.parametrize("above", [1, 2, 3])
def test_an_entry_missing_below_others_ends_no_read(
    above: int, remote: bool, how: str, tmp_path: Path
) -> None:
    """Protocol rule 5: the rows of those above it were acknowledged, too."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert(rows(0))
        writer.flush()
        for version in (1, 2, 3, 4):
            writer.upsert(rows(version))
    ((region_id, manifest),) = manifests(table.uri).items()
    first = manifest.replay_after_wal_entry_position
    entry = tmp_path / "t" / paths.wal_path(region_id, first + above)
    entry.unlink()
    if how == "folder":
        entry.mkdir()
    if remote and how == "gone" and above == 1:
        return  # nothing tells that from the end without a request more at each read

    def opened() -> mw.Table:
        return opened_over(table.uri, lambda store: _Remote(store) if remote else store)

    text = "is a folder" if how == "folder" else "is missing, but later"
    for ask in (
        lambda: opened().scan().read_all(),
        lambda: opened().get([1]),
        lambda: opened().pin() if how == "folder" or above > 1 else opened().count_rows(),
        lambda: opened().changes().read_all(),
        lambda: opened().writer().__enter__().upsert(rows(5)),
    ):
        with pytest.raises(mw.CorruptFileError, match=text) as caught:
            ask()
        assert entry.name in str(caught.value)
    report = mw.open_table(table.uri).check()
    assert not report.ok and entry.name in str(report)


class _Remote:
    """A store that says that requests take long."""

    remote = True

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
