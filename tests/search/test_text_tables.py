"""What a full-text search reads of a table, and which columns it gives."""

from __future__ import annotations

from pathlib import Path

import memwal_sql as mw
from tests.model.small_rows import SCHEMA, make_rows


def test_a_search_reads_what_its_consistency_and_its_version_show(tmp_path: Path) -> None:
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    table.create_index("text", "FTS")

    def found(handle: mw.Table, consistency: str) -> list[int]:
        rows = handle.full_text_search("text", "log", consistency=consistency)
        return sorted(rows["id"].to_pylist())

    with table.writer() as writer:
        writer.upsert(make_rows(1, text="log"))
        writer.flush()
        version = table.snapshot_regions()
        writer.upsert(make_rows(2, text="log"))
        writer.flush()
        writer.upsert(make_rows(1, text="merge"))
        expected = {"eventual": [1], "manifest": [1, 2], "strong": [2]}
        assert {name: found(table, name) for name in expected} == expected
        then = mw.open_table(table.uri, version=version)
        assert found(then, "strong") == [1]


def test_rows_come_whole_or_in_the_columns_asked_for(table: mw.Table) -> None:
    found = table.full_text_search("text", "x", 5)
    assert found.schema.names == [*SCHEMA.names, "_score"]
    assert found.drop(["_score"]).sort_by("id").cast(SCHEMA) == make_rows(0, 1, 2)
    found = table.full_text_search("text", "x", 5, columns=["small"])
    assert found.schema.names == ["small", "_score"]
