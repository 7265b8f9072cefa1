"""Registration: names, metadata tables, consistency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from unittest import mock
from uuid import UUID

import datafusion
import pyarrow as pa
import pytest

from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.node import Node
from exec_nodes.sources.memtable_source import MemTableSource
from memwal_native import quick_tables
from memwal_sql.errors import ReopenError, UnsupportedError
from memwal_sql.history.tables import FILES, HISTORY, SNAPSHOTS
from memwal_sql.read.inspect import GENERATIONS, INDEXES, REGIONS, WAL
from memwal_sql.read.planning import Planner
from memwal_sql.session.errors import memwal_errors
from memwal_sql.session.register import deregister, register
from memwal_sql.session.version import use_datafusion
from planner.model import RegionSources, Snapshot, TableInfo
from planner.predicates.expr import Compare, Literal, Operand, Other, Predicate

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string())])


@dataclass
class FakeTable:
    """A table without rows that remembers what it was asked."""

    schema: pa.Schema = SCHEMA
    asked: list[tuple[str, Sequence[Predicate]]] = field(default_factory=list)
    written: list[pa.Table] = field(default_factory=list)
    region_count: int = 0

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        self.asked.append((consistency, tuple(filters)))
        memtable = MemTableSource(
            identity=id(self),
            region="r",
            generation=1,
            primary_key=("id",),
            batches=(),
            rows=0,
            index=KeyIndex(),
            schema=self.schema.append(TOMBSTONE_FIELD),
        )
        region = RegionSources(UUID(int=1), "r", 0, None, (memtable,))
        return planner(Snapshot(TableInfo(self.schema, ("id",)), None, (region,)))

    def refresh(self) -> None:
        pass

    def insert(self, rows: pa.Table, columns: pa.Schema) -> int:
        assert columns == self.schema
        self.written.append(rows)
        return rows.num_rows

    def regions(self) -> pa.Table:
        row = {
            name: 0 if pa.types.is_integer(REGIONS.field(name).type) else "x"
            for name in REGIONS.names
        }
        return pa.Table.from_pylist([row] * self.region_count, REGIONS)

    def generations(self) -> pa.Table:
        return GENERATIONS.empty_table()

    def wal(self) -> pa.Table:
        return WAL.empty_table()

    def indexes(self) -> pa.Table:
        return INDEXES.empty_table()

    def history(self) -> pa.Table:
        return HISTORY.empty_table()

    def snapshots(self) -> pa.Table:
        return SNAPSHOTS.empty_table()

    def files(self) -> pa.Table:
        return FILES.empty_table()


@pytest.fixture
def table() -> FakeTable:
    return FakeTable()


@pytest.fixture
def ctx(table: FakeTable) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    register(context, "events", table)
    return context


def test_metadata_tables_are_read_at_query_time(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    query = "SELECT count(*) AS n FROM events$regions WHERE region = 'x'"
    assert ctx.sql(query).to_pylist() == [{"n": 0}]
    table.region_count = 3
    assert ctx.sql(query).to_pylist() == [{"n": 3}]
    assert len(ctx.sql("SELECT region_id, region FROM events$regions LIMIT 2").to_pylist()) == 2
    for about in ("generations", "wal", "indexes", "history", "snapshots", "files"):
        assert ctx.sql(f"SELECT * FROM events${about}").to_pylist() == []


def test_metadata_tables_can_not_be_written(ctx: datafusion.SessionContext) -> None:
    with pytest.raises(UnsupportedError, match=r"events\$indexes"), memwal_errors():
        ctx.sql("INSERT INTO events$indexes SELECT * FROM events$indexes").collect()


@pytest.mark.parametrize("consistency", ["eventual", "manifest", "strong"])
def test_queries_ask_for_the_registered_consistency(table: FakeTable, consistency: str) -> None:
    """Protocol rule 15: what `strong` sees is decided by the snapshot, so it must be asked for."""
    context = datafusion.SessionContext()
    register(context, "events", table, consistency)
    context.sql("SELECT * FROM events WHERE id > 3").collect()
    assert [asked for asked, _ in table.asked] == [consistency]


def test_an_unknown_consistency_is_refused(table: FakeTable) -> None:
    with pytest.raises(InvalidCallError, match="'linear'"):
        register(datafusion.SessionContext(), "events", table, "linear")


def test_every_query_takes_a_snapshot_of_its_own(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    """Protocol rule 14."""
    for _ in range(3):
        ctx.sql("SELECT count(*) FROM events").collect()
    assert len(table.asked) == 3


def test_filters_reach_the_snapshot_for_pruning_even_if_sources_do_not_take_them(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    ctx.sql("SELECT id FROM events WHERE id = 3 AND upper(kind) = 'X'").collect()
    (_, filters) = table.asked[-1]
    three = Compare(Operand("id"), "=", Literal(pa.int64(), 3))
    assert set(filters) == {three, Other(("kind",))}


@pytest.mark.parametrize(
    ("name", "in_sql", "about"),
    [
        ("Events", "EVENTS", "Events$wal"),
        ('"My events"', '"My events"', '"My events$wal"'),
        ("public.events", "events", "public.events$wal"),
        ("my-events", '"my-events"', '"my-events$wal"'),
    ],
)
def test_names_are_written_as_in_sql(table: FakeTable, name: str, in_sql: str, about: str) -> None:
    context = datafusion.SessionContext()
    register(context, name, table)
    assert context.sql(f"SELECT * FROM {in_sql}").to_pylist() == []
    assert context.sql(f"SELECT * FROM {about}").to_pylist() == []


def test_registering_again_replaces_and_deregistering_removes(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    other = FakeTable()
    register(ctx, "events", other)
    ctx.sql("SELECT * FROM events").collect()
    assert (len(other.asked), len(table.asked)) == (1, 0)
    deregister(ctx, "events")
    assert ctx.catalog().schema().names() == set()
    register(ctx, "events", table)
    assert ctx.sql("SELECT * FROM events").to_pylist() == []


def test_an_empty_name_is_refused(table: FakeTable) -> None:
    with pytest.raises(InvalidCallError, match="name"):
        register(datafusion.SessionContext(), "", table)


def test_columns_that_changed_since_registration_ask_for_a_new_one(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    table.schema = SCHEMA.append(pa.field("more", pa.int8()))
    with pytest.raises(ReopenError, match="register it again"), memwal_errors():
        ctx.sql("SELECT * FROM events").collect()


def test_insert_hands_all_rows_to_one_upsert(
    ctx: datafusion.SessionContext, table: FakeTable
) -> None:
    found = ctx.sql("INSERT INTO events VALUES (1, 'a'), (2, 'b')").to_pylist()
    assert found == [{"count": 2}]
    assert [t.num_rows for t in table.written] == [2]


@pytest.mark.parametrize("version", ["54.1.0", "56.0.0", "5.5.0", "550.0.0"])
def test_another_major_version_of_datafusion_is_refused(version: str) -> None:
    with (
        mock.patch("importlib.metadata.version", return_value=version),
        pytest.raises(ImportError, match=rf"built for datafusion 55, but datafusion {version} is"),
    ):
        use_datafusion()


@pytest.mark.parametrize(
    ("version", "quick"),
    [("55.0.0", True), ("55", False), ("55.0.1", False), ("55.0.0rc1", False), ("55.1.0", False)],
)
def test_private_layouts_are_read_of_the_version_that_was_tried_alone(
    version: str, quick: bool
) -> None:
    before = quick_tables(not quick)
    try:
        with mock.patch("importlib.metadata.version", return_value=version):
            use_datafusion()
        assert quick_tables(before) is quick
    finally:
        quick_tables(before)
