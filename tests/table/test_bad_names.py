"""Names of columns that files of Lance can't hold."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from tests.each import each

NAMES = {
    "key": pa.schema([("i\0d", pa.int64())]),
    "value": pa.schema([("id", pa.int64()), ("v\0", pa.int64())]),
    "inside": pa.schema([("id", pa.int64()), ("s", pa.struct([("\0a", pa.int8())]))]),
    "in a list": pa.schema([("id", pa.int64()), ("s", pa.list_(pa.struct([("a\0b", pa.int8())])))]),
}


@each("where", NAMES)
def test_a_name_with_nul_is_refused_before_anything_is_written(tmp_path: Path, where: str) -> None:
    """Arrow and Lance cut it off there, and two columns may become one."""
    schema = NAMES[where]
    with pytest.raises(InvalidCallError, match=r"NUL"):
        mw.create_table(tmp_path / "t", schema, primary_key=schema.names[0])
    assert not (tmp_path / "t").exists()


def test_rows_with_such_a_name_are_refused(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", pa.schema([("id", pa.int64())]), primary_key="id")
    version = lance.dataset(table.uri).version
    with table.writer() as writer:
        for name in ("i\0d", "id\0", "\0"):
            with pytest.raises(InvalidCallError):
                writer.upsert({"id": [1], name: [1]})
    assert table.scan().read_all().num_rows == 0 and lance.dataset(table.uri).version == version
