"""Rows without columns still count: `SELECT count(*)` asks a source for none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import memwal_sql as mw
from tests.model.writing import session_of


def test_counting_asks_for_no_column_in_every_layer(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])
    table = mw.create_table(str(tmp_path / "t"), schema, primary_key="id")
    session = session_of("t", table)

    def count(where: str = "") -> int:
        return session.sql(f"SELECT count(*) FROM t{where}").to_arrow_table().column(0)[0].as_py()

    with table.writer() as writer:
        for layer in ("memory", "flushed"):
            writer.upsert(pa.table({"id": [1, 2, 3, 1], "v": [1, 2, 3, 4]}))
            writer.delete([2])
            if layer == "flushed":
                writer.flush()
            assert count() == 2
            assert count(" WHERE id = 1") == 1
            assert count(" WHERE id = 2") == 0
            assert count(" WHERE id IN (1, 2, 3)") == 2
            assert table.scan(columns=[]).read_all().num_rows == 2
