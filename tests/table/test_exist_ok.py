"""`create_table(exist_ok=True)` opens a table that is as described, whoever creates it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.folder_state import folder_state

SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.dictionary(pa.int8(), pa.string()))])
REGIONS = "bucket(id, 2)"


def test_a_table_is_created_once_and_then_opened(tmp_path: Path) -> None:
    made = mw.create_table(tmp_path / "t", SCHEMA, "id", REGIONS, exist_ok=True)
    with made.writer() as writer:
        writer.upsert([{"id": 1, "kind": "a"}])
    for regions in (REGIONS, None, [mw.bucket("id", 2)]):
        opened = mw.create_table(tmp_path / "t", SCHEMA, "id", regions, exist_ok=True)
        assert opened.count_rows() == 1 and opened.schema == made.schema
    with pytest.raises(mw.InvalidCallError, match="is a table already"):
        mw.create_table(tmp_path / "t", SCHEMA, "id", REGIONS)


@each(
    "change",
    [
        {"schema": pa.schema([("id", pa.int64())])},
        {"schema": pa.schema([("id", pa.int32()), SCHEMA.field("kind")])},
        {"primary_key": "kind"},
        {"primary_key": ["id", "kind"]},
        {"regions": "bucket(id, 3)"},
        {"regions": "manual"},
    ],
)
def test_another_table_is_refused_and_stays(tmp_path: Path, change: dict[str, Any]) -> None:
    described = {"schema": SCHEMA, "primary_key": "id", "regions": REGIONS}
    mw.create_table(tmp_path / "t", **described)
    before = folder_state(tmp_path)
    with pytest.raises(mw.InvalidCallError, match="exists, and differs"):
        mw.create_table(tmp_path / "t", **{**described, **change}, exist_ok=True)
    assert folder_state(tmp_path) == before


def test_several_threads_get_one_table(tmp_path: Path) -> None:
    def create(number: int) -> mw.Table:
        table = mw.create_table(tmp_path / "t", SCHEMA, "id", REGIONS, exist_ok=True)
        with table.writer() as writer:
            writer.upsert([{"id": number, "kind": "a"}])
        return table

    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(create, range(8)))
    assert {table.count_rows() for table in tables} == {8}
