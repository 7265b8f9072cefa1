"""The whole path on every kind of store: a folder, memory, and an S3-compatible server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.concurrent import ReadWindow
from tests.model.s3 import s3_server
from tests.model.writing import flush_rows, session_of

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
SECRET = "a-very-secret-value"
NOW = timedelta(0)


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    with s3_server("tables", SECRET) as options:
        yield options


@pytest.fixture(params=["folder", "memory", "s3"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, s3_options: dict[str, str]
) -> tuple[str, dict[str, str] | None]:
    if request.param == "folder":
        return str(tmp_path / "t"), None
    if request.param == "memory":
        return f"memory://{uuid4().hex}", None
    return f"s3://tables/{uuid4().hex}", s3_options


def test_rows_are_written_flushed_replayed_and_read(
    place: tuple[str, dict[str, str] | None], within: Any
) -> None:
    within(ReadWindow.set(seconds=0.0))  # for which a collector waits
    uri, options = place
    table = mw.create_table(
        uri, SCHEMA, "id", regions=[mw.bucket("id", 2)], storage_options=options
    )
    writer = table.writer()
    writer.upsert({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "d"]})
    writer.flush()
    writer.delete([2])
    writer.upsert({"id": [3, 5], "name": ["C", "e"]})
    writer.close()

    reader = mw.open_table(uri, storage_options=options)
    expected = {1: "a", 3: "C", 4: "d", 5: "e"}
    assert dict(zip(*reader.scan().read_all().to_pydict().values(), strict=True)) == expected
    assert reader.get([5, 2, 1]).to_pylist() == [{"id": 5, "name": "e"}, {"id": 1, "name": "a"}]
    context = session_of("t", reader)
    rows = context.sql("SELECT count(*) AS n, max(name) AS last FROM t WHERE id > 1").to_pylist()
    assert rows == [{"n": 3, "last": "e"}]

    flush_rows(reader, {"id": [1], "name": ["A"]})
    assert table.get(1)["name"].to_pylist() == ["A"]
    table.snapshot_regions()
    recorded = mw.open_table(uri, storage_options=options).scan(consistency="eventual")
    flushed = reader.scan(consistency="manifest").read_all()
    assert recorded.read_all().sort_by("id").equals(flushed.sort_by("id"))
    assert flushed.num_rows
    assert table.merge() == 3
    table.build_indexes()
    merged = mw.open_table(uri, storage_options=options)
    assert sum(len(region.sources) for region in merged.snapshot("manifest").regions) == 0
    rows = merged.scan(consistency="manifest").read_all()
    assert rows.sort_by("id").equals(flushed.sort_by("id"))
    assert table.merge() == 0

    table.checkpoint("c")
    before = reader.scan().read_all().sort_by("id")
    flush_rows(reader, {"id": [1, 9], "name": ["B", "i"]})
    newest = reader.scan().read_all()
    table.merge()
    kinds = table.collect_garbage(older_than=NOW)["kind"].to_pylist()
    assert {"generation", "wal entry"} <= set(kinds)
    then = mw.open_table(uri, storage_options=options, checkpoint="c")
    assert then.scan().read_all().sort_by("id").equals(before)
    table.drop_checkpoint("c")
    kinds = table.collect_garbage(older_than=NOW, versions_older_than=NOW)["kind"].to_pylist()
    assert {"base version", "checkpoint"} <= set(kinds)
    assert table.collect_garbage(older_than=NOW, dry_run=True).num_rows == 0
    last = mw.open_table(uri, storage_options=options)
    assert last.scan().read_all().sort_by("id").equals(newest.sort_by("id"))
    assert last.check().ok
