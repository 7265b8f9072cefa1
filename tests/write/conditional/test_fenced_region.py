"""A serializable statement whose region is taken over before it reads."""

from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.write.region_writer import RegionWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


def test_it_is_made_anew(fast_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(fast_folder / "table")
    ctx = datafusion.SessionContext()
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="identity(id)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, 0), (2, 0)")
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    open_cut = RegionWriter.open_cut
    others = [[{"id": 2, "n": 5}]]

    def taken_over_before(writer: RegionWriter) -> object:
        if others:
            with mw.open_table(uri) as other, other.writer() as its:
                its.upsert(others.pop())
        return open_cut(writer)

    monkeypatch.setattr(RegionWriter, "open_cut", taken_over_before)
    mw.sql(ctx, "UPDATE t SET n = n + (SELECT n FROM t WHERE id = 2) WHERE id = 1")
    assert others == []
    assert table.get([1]).to_pylist() == [{"id": 1, "n": 5}]
    table.close()
