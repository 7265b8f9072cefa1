"""Values in statements and conditions that ended in errors of others, or in none."""

from __future__ import annotations

from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw


def test_values_are_taken_or_refused_by_errors_of_this_package(tmp_path: Path) -> None:
    vector = pa.field("v", pa.list_(pa.float32(), 2))
    schema = pa.schema([pa.field("id", pa.uint64(), False), pa.field("s", pa.string()), vector])
    table = mw.create_table(tmp_path / "t", schema, "id")
    largest = (1 << 64) - 1
    with table.writer() as writer:
        writer.upsert([{"id": largest, "s": "a", "v": [0.0, 0.0]}])
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    for text in ("SELECT id FROM t WHERE id = $id", "SELECT $id AS id"):
        assert mw.sql(context, text, id=largest).to_pylist() == [{"id": largest}]
    deep = "[" * 100_000
    for text, value in (
        (f"SELECT '{deep}' <-> v AS d FROM t", {}),
        ("SELECT $q <-> v FROM t", {"q": deep}),
    ):
        with pytest.raises(mw.InvalidCallError, match="is not a vector"):
            mw.sql(context, text, **value).to_pylist()
    for pattern in ("(" * 2_000 + ")" * 2_000, "(", "((a{0,1000}){0,1000}){0,1000}"):
        for condition in (f"regexp_like(s, '{pattern}')", f"s ~ '{pattern}'"):
            with pytest.raises(mw.InvalidCallError):
                table.scan(filter=condition).read_all()
