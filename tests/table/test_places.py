"""One table under several spellings of its place, and under a working folder that changes."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.model.writing import session_of

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def test_a_relative_path_stays_where_it_was_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = mw.create_table("tab", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1], "v": ["x"]})
        (tmp_path / "sub").mkdir()
        os.chdir(tmp_path / "sub")
        writer.flush()
    assert mw.open_table(tmp_path / "tab").get(1)["v"].to_pylist() == ["x"]
    assert table.get(1)["v"].to_pylist() == ["x"]
    assert not list((tmp_path / "sub").iterdir())


def test_every_spelling_of_a_place_sees_this_process_s_buffered_rows(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    table = mw.create_table(folder, SCHEMA, "id")
    (tmp_path / "link").symlink_to(folder)
    with table.writer(durable=False, wal_flush_interval_s=100.0) as writer:
        writer.upsert({"id": [1], "v": ["x"]})
        quoted = str(folder).replace(" ", "%20")
        for uri in (
            f"{folder}/",
            f"file://{quoted}",
            f"file://localhost{quoted}",
            f"file:{quoted}",
            f"FILE:{quoted}",
            tmp_path / "link",
        ):
            other = mw.open_table(uri)
            assert other.get(1).num_rows == 1
            context = session_of("t", other)
            context.sql("INSERT INTO t VALUES (2, 'y')").collect()
        writer.upsert({"id": [3], "v": ["z"]})  # no INSERT has fenced it


def test_a_pinned_handle_changes_nothing_and_shows_nothing_newer(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1], "v": ["x"]})
        pinned = mw.open_table(table.uri, version=table.snapshot_regions())
        context = session_of("old", pinned)
        with pytest.raises(mw.InvalidCallError, match="reads version"), mw.memwal_errors():
            context.sql("INSERT INTO old VALUES (2, 'y')").collect()
        for call in (
            *(pinned.snapshot_regions, pinned.regions, pinned.generations, pinned.wal),
            *(pinned.merge, pinned.collect_garbage, pinned.writer),
            lambda: pinned.create_index("v", "FTS"),
            lambda: pinned.drop_index("id_idx"),
        ):
            with pytest.raises(mw.InvalidCallError, match="reads version"):
                call()
    assert table.scan().read_all().num_rows == 1


def test_a_filtered_scan_takes_names_with_quotes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ('q"x', pa.int64())])
    table = mw.create_table(tmp_path / "t", schema, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], 'q"x': [5, 6]})
        found = table.scan(filter="abs(id) % 2 = 0").read_all()
    assert found.to_pylist() == [{"id": 2, 'q"x': 6}]
