"""How rows are kept live or not, and compared with those of the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read.live.settings import LIVE_ROWS, Live, LiveRows

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.float64())])


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(vars(LIVE_ROWS))
    with Live.set(enabled=0, checked=0, waited=1, least_rows=0):
        yield
    vars(LIVE_ROWS).update(before)


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert({"id": range(20), "v": [None, float("nan"), *range(18)]})
    return table


def state(table: mw.Table) -> str:
    assert table._image is not None
    return table._image.state().state


def test_rows_are_kept_live_as_configured(table: mw.Table) -> None:
    table.to_arrow()
    assert state(table) == "off"
    mw.configure(live_rows=True)
    table.to_arrow()
    assert state(table) == "live"
    live = table._image._image.live if table._image and table._image._image else None
    mw.configure(memory="1GiB")
    assert state(table) == "live"
    mw.configure(live_rows=False)
    assert state(table) == "off"
    assert not mw.resident().filter(pa.compute.field("kind") == "live keys")["entries"][0].as_py()
    assert live is not None
    assert table.count_rows() == 20


@pytest.mark.parametrize("wrong", ["yes", "true", 1, 0, 2.0, [], "Check"])
def test_values_that_are_wrong_change_nothing(wrong: Any) -> None:
    budget = mw.memory.STORE.max_bytes
    with pytest.raises(mw.InvalidCallError, match='live_rows must be True, False or "check"'):
        mw.configure(live_rows=wrong, memory=budget + 1)
    assert mw.memory.STORE.max_bytes == budget
    assert not Live.enabled


@pytest.mark.parametrize(
    ("named", "modes"),
    [
        *((text, (1, 0)) for text in ("true", "TRUE", "1", "on")),
        *((text, (0, 0)) for text in ("false", "0", "off", "")),
        ("check", (1, 1)),
    ],
)
def test_the_environment_says_so_until_the_process_does(
    named: str, modes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMWAL_LIVE_ROWS", named)
    assert LiveRows().are_on == bool(modes[0])
    assert (Live.enabled, Live.checked) == modes
    settings = LiveRows()
    settings.set(not modes[0])
    assert settings.are_on == (not modes[0])


def test_an_environment_that_is_wrong_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMWAL_LIVE_ROWS", "perhaps")
    for _ in range(2):
        with pytest.raises(mw.InvalidCallError, match=r"MEMWAL_LIVE_ROWS must be .* 'perhaps'"):
            _ = LiveRows().are_on


QUERIES = [
    "SELECT * FROM t",
    "SELECT v FROM t WHERE id < 5",
    "SELECT v FROM t WHERE id = 3",
    "SELECT id FROM t LIMIT 7",
    "SELECT id FROM t WHERE v > 3 LIMIT 100",
    "SELECT count(*) FROM t",
]


def test_both_ways_are_compared_where_that_is_asked_for(table: mw.Table) -> None:
    mw.configure(live_rows="check")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    table.to_arrow()
    for query in QUERIES:
        plan = str(ctx.sql(f"EXPLAIN {query}").to_pydict()["plan"])
        assert "CheckedLiveExec" in plan
        ctx.sql(query).to_arrow_table()
    assert table._image is not None
    assert table._image._image is not None
    live = table._image._image.live
    assert live is not None
    rows = pa.record_batch([pa.array([3, 99]), pa.array([7.5, 7.5])], schema=SCHEMA)
    live.apply([(rows, rows.column(0), None)], live.state)
    for query in QUERIES[:3]:
        with pytest.raises(Exception, match="live rows where the files give") as error:
            ctx.sql(query).to_arrow_table()
        assert "live_rows=False" in str(error.value)
    with pytest.raises(mw.RepairError, match=r"live rows where .*one only has \{'id'"):
        table.to_arrow()
    mw.configure(live_rows=False)
    assert table.count_rows() == 20


def test_rows_of_regions_that_conditions_rule_out_may_be_live(uri: str) -> None:
    """DataFusion applies conditions on times in a zone, which rule regions out before."""
    kind = pa.timestamp("ms", "Europe/Berlin")
    schema = pa.schema([pa.field("id", kind, nullable=False), SCHEMA.field("v")])
    table = mw.create_table(uri, schema, "id", regions=[mw.bucket("id", 7)])
    for value in (1.0, 2.0):  # older rows of the base table
        with table.writer() as writer:
            rows = {"id": pa.array(range(9), kind), "v": [value] * 9}
            writer.upsert(pa.table(rows, schema))
        if value < 2:
            table.flush()
            table.merge()
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    mw.configure(live_rows="check")
    for _ in range(2):
        assert table.to_arrow().num_rows == 9
        found = ctx.sql(
            "SELECT * FROM t WHERE id = arrow_cast(CAST(3 AS BIGINT), "
            "'Timestamp(Millisecond, Some(\"Europe/Berlin\"))')"
        ).to_arrow_table()
        assert found["id"].cast(pa.int64()).to_pylist() == [3]
        assert found["v"].to_pylist() == [2.0]
