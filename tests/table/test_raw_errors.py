"""What other libraries raise reaches no caller raw."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.arrow.nested import MOST_LEVELS
from tests.each import each
from tests.model.small_rows import SCHEMA, make_rows

WRAPS: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "structs": lambda kind: pa.struct([pa.field("x", kind)]),
    "lists": pa.list_,
    "maps": lambda kind: pa.map_(pa.string(), kind),
}


def deep(wrap: Callable[[pa.DataType], pa.DataType], levels: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(levels):
        kind = wrap(kind)
    return kind


@each("wrap", WRAPS)
def test_types_of_too_many_levels_are_refused(tmp_path: Path, wrap: str) -> None:
    """They were a RecursionError, or Arrow's, in the midst of a call."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    writer = table.writer()
    for levels in (MOST_LEVELS + 1, 70, 500, 3000):
        kind = deep(WRAPS[wrap], levels)
        schema = pa.schema({"id": pa.int64(), "s": kind})
        calls: list[Callable[[], object]] = [
            partial(mw.create_table, tmp_path / "other", schema, "id"),
            partial(table.add_columns, pa.schema([schema.field("s")])),
        ]
        if levels <= 500:
            rows = make_rows(1).set_column(2, "text", pa.nulls(1, kind))
            calls.append(partial(writer.upsert, rows))
        for call in calls:
            with pytest.raises(mw.InvalidCallError, match=f"'(s|text)' .* {MOST_LEVELS} levels"):
                call()
    writer.close()
    assert not (tmp_path / "other").exists()


def test_the_most_levels_are_stored(tmp_path: Path) -> None:
    kind = deep(WRAPS["structs"], MOST_LEVELS)
    table = mw.create_table(tmp_path / "t", pa.schema({"id": pa.int64(), "s": kind}), "id")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "s": pa.nulls(1, kind)}))
    table.flush()
    table.merge()
    assert mw.open_table(table.uri).to_arrow().num_rows == 1


@pytest.mark.parametrize("place", ["base", "generation", "memory"])
def test_a_filter_that_nests_too_deep_is_a_bad_call_of_a_search(tmp_path: Path, place: str) -> None:
    vectors = pa.list_(pa.float32(), 2)
    rows = pa.table({"id": [1], "s": ["a"], "v": pa.array([[0.0, 1.0]], vectors)})
    table = mw.create_table(tmp_path / "t", rows.schema, "id")
    with table.writer() as writer:
        writer.upsert(rows)
        if place != "memory":
            writer.flush()
        if place == "base":
            table.merge()
        with pytest.raises(mw.InvalidCallError, match=r"^a condition on .* nested too deeply"):
            table.vector_search("v", [0.0, 1.0], k=1, filter=" || ".join(["s"] * 61) + " = 'a'")


def test_no_room_for_a_temporary_file_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(make_rows(1), tmp_path / "t")
    table = mw.enable(tmp_path / "t", primary_key="id")
    table.snapshot_regions()
    with table.writer() as writer:
        writer.upsert(make_rows(2))
        writer.flush()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    calls = (table.snapshot_regions, lambda: table.checkpoint("c"), lambda: mw.run_all_jobs(table))
    for call in calls:
        with pytest.raises(mw.RetryError, match="TMPDIR"):
            call()
