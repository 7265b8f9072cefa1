"""A pinned snapshot is the same wherever and whenever it is rebuilt."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import SourceGoneError
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.read.planning import stream
from memwal_sql.session.filter_text import implied
from memwal_sql.table import Table
from planner.model import Query
from planner.plan import plan
from tests.model.writing import upsert_rows

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return mw.create_table(tmp_path / "table", SCHEMA, "id", [mw.bucket("id", 3)])


def read(table: Table, pinned: PinnedSnapshot) -> dict[int, str]:
    snapshot = table.pinned_table().snapshot(pickle.loads(pickle.dumps(pinned)))
    rows = stream(plan(Query(("id", "val")), snapshot)).read_all()
    return dict(zip(rows["id"].to_pylist(), rows["val"].to_pylist(), strict=True))


@pytest.mark.parametrize("durable", [True, False])
def test_later_writes_flushes_and_merges_change_nothing(table: Table, durable: bool) -> None:
    with table.writer(durable=durable) as writer:
        writer.upsert({"id": list(range(50)), "val": ["a"] * 50})
        writer.flush()
        writer.upsert({"id": [1, 2], "val": ["b", "b"]})
        writer.delete([3])
        expected = dict.fromkeys(range(50), "a") | {1: "b", 2: "b"}
        del expected[3]
        pinned = table.pin()
        assert read(table, pinned) == expected
        writer.upsert({"id": [1, 4], "val": ["later", "later"]})
        assert read(table, pinned) == expected
        writer.flush()
        table.merge()
        assert read(table, pinned) == expected
        assert read(mw.open_table(table.uri), pinned) == expected
        assert read(table, table.pin()) == expected | {1: "later", 4: "later"}


def test_filters_leave_regions_out(table: Table) -> None:
    upsert_rows(table, {"id": list(range(50)), "val": ["a"] * 50})
    pinned = table.pin("strong", implied("id = 7", table.schema))
    assert (len(pinned.regions), pinned.regions_pruned) == (1, 2)
    assert len(table.pin("manifest").regions) == 3
    assert read(table, table.pin("manifest")) == {}


def test_entries_that_were_collected_are_an_error_and_not_skipped(table: Table) -> None:
    """Protocol rule 14: a missing part is never skipped."""
    with table.writer() as writer:
        writer.upsert({"id": list(range(50)), "val": ["a"] * 50})
        pinned = table.pin()
        for entry in Path(table.uri).glob("_mem_wal/*/wal/*.arrow"):
            entry.unlink()
        with pytest.raises(SourceGoneError, match="run the query again"):
            read(table, pinned)
