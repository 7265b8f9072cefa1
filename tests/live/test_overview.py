"""Overviews say which rows are live, or why none are."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.resident.store import STORE
from memwal_sql.read.live.kept import KEYS
from memwal_sql.read.live.settings import Live
from memwal_sql.read.live.state import LiveState

SCHEMA = pa.schema(
    [
        *(pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert([{"id": one, "v": one, "vector": [1.0, 2.0]} for one in range(1200)])
    return table


def shown(table: mw.Table) -> tuple[LiveState, list[str]]:
    """The state of the live rows, and the lines about them."""
    view = table.overview()
    assert view.live is not None
    assert asdict(view)["live"]["state"] == view.live.state
    lines = [line.strip("│├└─ ") for line in str(view).splitlines()]
    return view.live, [line for line in lines if line.startswith(("live rows", "without"))]


def test_an_overview_says_what_is_live_and_why_not(table: mw.Table) -> None:
    with Live.set(enabled=0):
        live, lines = shown(table)
        assert (live, lines) == (LiveState("off"), [])
    with Live.set(enabled=1):
        live, lines = shown(table)
        assert lines == [
            "live rows none: queries have read too little of it so far; "
            "0 live plans, 0 general plans"
        ]
        for _ in range(2):  # the first opens the files
            table.to_arrow()
        live, lines = shown(table)
        assert live.reason == "tables of fewer than 10000 rows are quick anyway"
    with Live.set(enabled=1, least_rows=0, waited=1):
        for columns in (["v"], ["v"], ["v", "vector"]):
            table.to_arrow(columns)
        live, lines = shown(table)
        assert (live.state, live.rows, live.columns) == ("live", 1200, ("id", "v"))
        assert live.queries == {"live": 1, "general": 2}
        assert live.bytes > 1200 * 16
        line, without = lines
        assert line.startswith("live rows live: 1,200 rows, ")
        assert line.endswith(", 1 live plan, 2 general plans, columns id, v")
        assert without.startswith("without vector: columns of type fixed_size_list")
        STORE.evict_where(KEYS, lambda _: True)
        live, (line,) = shown(table)
        assert line.startswith("live rows none: their memory was needed; 1 live plan")


def test_a_large_table_that_was_just_opened_is_not_called_small(table: mw.Table) -> None:
    with Live.set(enabled=1, least_rows=1000), mw.open_table(table.uri) as opened:
        reasons = []
        for _ in range(3):
            opened.count_rows()
            reasons.append(opened.overview().live.reason)
    assert not any("fewer than" in reason for reason in reasons), reasons


def test_a_version_has_no_live_rows(table: mw.Table) -> None:
    version = table.snapshot_regions()
    assert mw.open_table(table.uri, version=version).overview().live is None
