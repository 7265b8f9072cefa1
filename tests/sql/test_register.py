"""Registration: metadata tables, consistency, filters, versions of DataFusion."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from typing import Any
from unittest import mock

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_native import quick_tables
from memwal_sql.session.version import crates_of, use_datafusion
from planner.predicates.expr import Compare, Literal, Operand, Other, Predicate

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string())])
Asked = list[tuple[str, Sequence[Predicate]]]


@pytest.fixture
def table(uri: str) -> mw.Table:
    return mw.create_table(uri, SCHEMA, "id")


@pytest.fixture
def ctx(table: mw.Table) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    mw.register(context, "events", table)
    return context


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The consistency and the filters of each snapshot that a query takes."""
    calls: Asked = []
    planned = mw.Table.planned

    def noted(table: mw.Table, planner: Any, consistency: str, filters: Any) -> Any:
        calls.append((consistency, tuple(filters)))
        return planned(table, planner, consistency, filters)

    monkeypatch.setattr(mw.Table, "planned", noted)
    return calls


def test_metadata_tables_are_read_at_query_time(
    ctx: datafusion.SessionContext, table: mw.Table
) -> None:
    query = "SELECT count(*) AS n FROM events$regions WHERE region = 'unsharded=0'"
    assert ctx.sql(query).to_pylist() == [{"n": 0}]
    with table.writer() as writer:
        writer.upsert([{"id": 1, "kind": "a"}])
    assert ctx.sql(query).to_pylist() == [{"n": 1}]
    assert len(ctx.sql("SELECT region_id, region FROM events$regions LIMIT 2").to_pylist()) == 1
    for about in ("generations", "wal", "indexes", "history", "snapshots", "files"):
        ctx.sql(f"SELECT * FROM events${about}").collect()
    with pytest.raises(mw.UnsupportedError, match=r"events\$indexes"), mw.memwal_errors():
        ctx.sql("INSERT INTO events$indexes SELECT * FROM events$indexes").collect()


@pytest.mark.parametrize("consistency", ["eventual", "manifest", "strong"])
def test_each_query_takes_a_snapshot_of_the_registered_consistency(
    table: mw.Table, asked: Asked, consistency: str
) -> None:
    """Protocol rules 14 and 15: what `strong` sees is decided by the snapshot."""
    context = datafusion.SessionContext()
    mw.register(context, "events", table, consistency)
    for _ in range(3):
        context.sql("SELECT count(*) FROM events WHERE id > 3").collect()
    assert [level for level, _ in asked] == [consistency] * 3
    with pytest.raises(mw.InvalidCallError, match="'linear'"):
        mw.register(context, "events", table, "linear")


def test_filters_reach_the_snapshot_for_pruning_even_if_sources_do_not_take_them(
    ctx: datafusion.SessionContext, asked: Asked
) -> None:
    ctx.sql("SELECT id FROM events WHERE id = 3 AND upper(kind) = 'X'").collect()
    (_, filters) = asked[-1]
    three = Compare(Operand("id"), "=", Literal(pa.int64(), 3))
    assert set(filters) == {three, Other(("kind",))}


class _Wheel(importlib.metadata.Distribution):
    """An installed `datafusion` with a bill of materials, or without."""

    def __init__(self, version: str, bill: str | None) -> None:
        self._texts = {"METADATA": f"Name: datafusion\nVersion: {version}\n", BILL: bill}

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: object) -> importlib.metadata.SimplePath:
        raise NotImplementedError


BILL = "sboms/datafusion-python.cyclonedx.json"


def _bill(**crates: str) -> str:
    parts = [{"type": "library", "name": name, "version": v} for name, v in crates.items()]
    return json.dumps({"bomFormat": "CycloneDX", "components": parts}, indent=2)


def _use(wheel: _Wheel) -> None:
    with mock.patch("importlib.metadata.distribution", return_value=wheel):
        use_datafusion()


@pytest.mark.parametrize("version", ["54.1.0", "56.0.0", "5.5.0", "550.0.0"])
def test_another_major_version_of_datafusion_is_refused(version: str) -> None:
    with pytest.raises(ImportError, match=rf"built for datafusion 55, but datafusion {version} is"):
        _use(_Wheel(version, None))


@pytest.mark.parametrize(
    ("bill", "quick"),
    [
        (_bill(**{"datafusion": "55.9.0", "datafusion-ffi": "55.2.0"}), True),
        (_bill(**{"datafusion": "55.2.0", "datafusion-ffi": "55.0.0"}), False),
        (_bill(**{"datafusion-ffi": "55.2.0-rc1"}), False),
        (_bill(datafusion="55.2.0"), False),
        ("", False),
        (None, False),
    ],
)
def test_private_layouts_are_read_of_the_crates_that_were_tried_alone(
    bill: str | None, quick: bool
) -> None:
    before = quick_tables(not quick)
    try:
        _use(_Wheel("55.0.0", bill))
        assert quick_tables(before) is quick
    finally:
        quick_tables(before)


def test_sql_tells_the_version_of_the_crates() -> None:
    told = datafusion.SessionContext().sql("SELECT version() AS version").to_pylist()
    crates = crates_of(importlib.metadata.distribution("datafusion"))
    assert f"DataFusion {crates}, " in told[0]["version"]
