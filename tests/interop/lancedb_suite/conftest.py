"""Our jobs run on each table after every write of LanceDB; in the end both read the same rows, also
after all of them are merged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from lancedb.table import AsyncTable

import memwal_sql as mw


@pytest.fixture(autouse=True)
def jobs_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Merge, index, record and collect after every write; compare at the end."""
    uri = str(tmp_path / "t.lance")
    writers: list[AsyncTable] = []
    write = AsyncTable._do_merge

    async def write_then_run_jobs(table: AsyncTable, *args: Any) -> Any:
        done = await write(table, *args)
        writers.append(table)
        await asyncio.to_thread(_run_jobs, uri)
        return done

    monkeypatch.setattr(AsyncTable, "_do_merge", write_then_run_jobs)
    yield
    assert writers
    expected = _read_here(uri)
    for writer in writers:
        asyncio.run(writer.close_lsm_writers())
    assert _read_there(tmp_path) == expected
    _run_jobs(uri)
    assert _read_here(uri) == expected
    assert _read_there(tmp_path) == expected
    assert mw.open_table(uri).count_rows() == len(expected)


def _run_jobs(uri: str) -> None:
    table = mw.open_table(uri)
    table.merge()
    table.build_indexes()
    table.snapshot_regions()
    table.collect_garbage(older_than=timedelta(0))
    report = table.check()
    assert report.ok, report.findings


def _read_here(uri: str) -> list[dict[str, Any]]:
    return _sorted(mw.open_table(uri).to_arrow())


def _read_there(path: Path) -> list[dict[str, Any]]:
    db = lancedb.connect(path, read_consistency_interval=timedelta(0))
    return _sorted(db.open_table("t").search().to_arrow())


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by("id").to_pylist()
    return rows
