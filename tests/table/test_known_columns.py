"""Readers that were made before others added or widened columns go on with those that they know."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(6, 2)),
        ("s", pa.string()),
        ("v", pa.list_(pa.float32(), 2)),
    ]
)
ROWS = [
    {"id": 1, "n": 1, "f": 0.1, "d": Decimal("1.50"), "s": "red", "v": [1.0, 0.0]},
    {"id": 2, "n": 2, "f": 0.2, "d": Decimal("2.50"), "s": "blue red", "v": [0.0, 1.0]},
]
TYPES = {"n": pa.int64(), "f": pa.float64(), "d": pa.decimal128(12, 4)}
Rows = list[tuple[Any, ...]]
Read = Callable[[], Rows]

# Each gives the rows with these ids, in order.
QUERIES = (
    "SELECT * FROM t ORDER BY id",
    "SELECT n, d FROM t WHERE n > 1 ORDER BY id",
    "SELECT id FROM t WHERE f = CAST(0.1 AS FLOAT)",
    "SELECT id, f, d FROM t WHERE d = 1.50 AND s LIKE 'r%' LIMIT 1",
    "SELECT max(n), sum(f), count(*) FROM t",
    "SELECT id, n FROM t WHERE id = 2",
    "SELECT id FROM t WHERE n + 1 = 2 OR d < 1",
    "SELECT s FROM t WHERE n IN (2, 3) LIMIT 5",
    "SELECT id FROM t WHERE match(s, 'blue') AND n = 2",
    "SELECT n, id FROM t ORDER BY array_distance(v, [1.0, 0.0]) LIMIT 1",
    "SELECT id, n, round(_distance, 3) FROM vector_search('t', 'v', [0.0, 1.0], 2)",
    "SELECT a.n, b.f FROM t a JOIN t b ON a.id = b.id ORDER BY a.id",
    "SELECT n FROM seen ORDER BY n",
    "SELECT * FROM seen_all ORDER BY id",
)

WRITE = "UPDATE t SET s = 'x' WHERE id = 1"
# A search sees the columns of the time when it is planned.
SEARCHES = [query for query in QUERIES if "vector_search" in query]


def _tuples(rows: pa.Table | list[pa.RecordBatch]) -> Rows:
    """Their types, and their values."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_batches(rows) if rows else pa.table({})
    return [tuple(map(str, rows.schema.types)), *(tuple(row.values()) for row in rows.to_pylist())]


def _readers(uri: str) -> dict[str, Read]:
    """Readers of a table, all of them made, and none of them run."""
    table = mw.open_table(uri)
    plain, session = datafusion.SessionContext(), mw.SessionContext()
    for ctx in (plain, session):
        mw.register(ctx, "t", table)
        ctx.register_table("seen_all", ctx.table("t").into_view())
        datafusion.SessionContext.sql(ctx, "CREATE VIEW seen AS SELECT n FROM t")
    readers: dict[str, Read] = {}
    for query in QUERIES:
        frame = plain.sql(query)
        readers[f"frame {query}"] = lambda frame=frame: _tuples(frame.collect())
        readers[f"ctx.sql {query}"] = lambda query=query: _tuples(plain.sql(query).collect())
        readers[f"mw.sql {query}"] = lambda query=query: _tuples(mw.sql(session, query).collect())
    mounted = datafusion.SessionContext()
    mounted.register_table("t", table)
    readers["mounted"] = lambda: _tuples(mounted.sql(QUERIES[0]).collect())
    lazy, dataset = table.to_polars(lazy=True), table.to_dataset()
    readers["polars"] = lambda: lazy.sort("id").collect().rows()
    readers["polars n"] = lambda: lazy.filter(polars.col("n") == 2).collect().rows()
    readers["dataset"] = lambda: _tuples(dataset.to_table().sort_by("id"))
    readers["dataset n"] = lambda: _tuples(dataset.to_table(["n"], filter=pc.field("n") == 2))
    duck = duckdb.connect()
    duck.register("t", dataset)
    readers["duckdb"] = lambda: duck.sql("SELECT id, n, f, d FROM t WHERE n > 1").fetchall()
    return readers


def _created(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert(ROWS[:1])
        writer.flush()
        writer.upsert(ROWS[1:])
    return table


def _upsert(table: mw.Table, row: dict[str, Any]) -> None:
    with table.writer() as writer:
        writer.upsert([row])


def _widen(table: mw.Table) -> None:
    for name, kind in TYPES.items():
        table.set_type(name, kind)


@each(
    "change",
    [
        lambda t: (t.rename_column("n", "x"), t.add_columns(pa.field("n", pa.int32()))),
        lambda t: (t.drop_columns("n"), t.add_columns(pa.field("n", pa.int32()))),
        lambda t: (t.rename_column("f", "x"), t.add_columns({"f": "x * 2"})),
        lambda t: (t.drop_columns("v"), t.add_columns(pa.field("v", SCHEMA.field("v").type))),
    ],
)
def test_another_column_of_the_name_is_none_that_they_know(
    tmp_path: Path, change: Callable[[mw.Table], object]
) -> None:
    """Sessions, frames, views, datasets and statements ask to be made again, also by the same
    handle."""
    uri = str(tmp_path / "t")
    table = _created(uri)
    readers, own = _readers(uri), mw.SessionContext()
    mw.register(own, "t", table)
    change(table)
    _upsert(table, {"id": 3, "s": "red"})
    for text in (QUERIES[0], WRITE):
        readers[text] = lambda text=text: mw.sql(own, text).collect()
    refused = [text for text in readers if text.partition(" ")[2] not in SEARCHES]
    for name in refused:
        foreign = name.split()[0] in ("polars", "dataset", "duckdb")  # raise errors of their own
        error = Exception if foreign else mw.ReopenError
        changed = pytest.raises(error, match=r"have changed since.*'.' was (dropped|renamed)")
        with changed, mw.memwal_errors():
            readers[name]()


@each(
    "change, merged",
    [
        (lambda t: t.add_columns([pa.field("p", pa.float64()), pa.field("q", pa.string())]), True),
        (lambda t: t.add_columns({"p": "n * 2"}), False),
        (_widen, False),
        (_widen, True),
    ],
)
def test_readers_keep_the_columns_that_they_know(
    tmp_path: Path, change: Callable[[mw.Table], object], merged: bool
) -> None:
    """In their known types, whatever is written to them."""
    uri = str(tmp_path / "t")
    table = _created(uri)
    readers = _readers(uri)
    expected = {name: read() for name, read in _readers(uri).items()}
    change(table)
    _upsert(table, {"id": 1, "n": 1})
    if merged:
        table.flush()
        table.merge()
    for name, read in readers.items():
        assert read() == expected[name], name
    session = mw.SessionContext()
    mw.register(session, "t", mw.open_table(uri))
    assert mw.sql(session, "SELECT * FROM t").schema().names == table.schema.names


@each(
    "change, row, words",
    [
        (lambda t: t.drop_columns("n"), {}, "'n' was dropped"),
        (lambda t: t.rename_column("n", "m"), {}, "'n' was renamed to 'm'"),
        (_widen, {"n": 2**31}, "column 'n' is int64 by now, was int32 .* has values that int32"),
        (_widen, {"f": 1e300}, "column 'f' is double by now, was float .* has values that float"),
        (_widen, {"f": 0.1}, "column 'f' is double by now"),
        (_widen, {"d": Decimal("0.001")}, "column 'd' is decimal128.12, 4. by now"),
    ],
)
def test_readers_that_can_t_go_on_name_the_columns(
    tmp_path: Path, change: Callable[[mw.Table], object], row: dict[str, Any], words: str
) -> None:
    uri = str(tmp_path / "t")
    table = _created(uri)
    readers = _readers(uri)
    change(table)
    _upsert(table, {"id": 1, **row})
    query = QUERIES[0]
    for name in (f"frame {query}", f"ctx.sql {query}", f"mw.sql {query}"):
        with pytest.raises(mw.ReopenError, match=words), mw.memwal_errors():
            readers[name]()
    for name in ("polars", "dataset"):  # which pass errors on as their own
        with pytest.raises(Exception, match=words):
            readers[name]()


def test_a_filter_on_a_widened_column_is_applied_to_its_known_type(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    session = mw.SessionContext()
    mw.register(session, "t", table)
    mw.open_table(table.uri).set_type("f", pa.float64())
    query = "SELECT id FROM t WHERE f = CAST(0.1 AS FLOAT)"
    assert mw.sql(session, query).to_pylist() == [{"id": 1}]
    plan = str(mw.sql(session, f"EXPLAIN {query}").to_pylist())
    assert "FilterExec" in plan and "KnownColumnsExec: columns=[f float]" in plan


def test_statements_read_what_they_know_and_write_no_table_with_other_columns(
    tmp_path: Path,
) -> None:
    """A changed table's whole rows are written."""
    session = mw.SessionContext()
    tables = {name: _created(str(tmp_path / name)) for name in ("written", "read")}
    for name, table in tables.items():
        mw.register(session, name, table)
    mw.open_table(tables["read"].uri).add_columns(pa.field("p", pa.int64()))
    mw.sql(session, "UPDATE written SET n = (SELECT max(n) FROM read)")
    mw.sql(session, "INSERT INTO written SELECT id + 10, n, f, d, s, v FROM read")
    assert mw.sql(session, "SELECT id, n FROM written ORDER BY id").to_pylist() == [
        {"id": 1, "n": 2},
        {"id": 2, "n": 2},
        {"id": 11, "n": 1},
        {"id": 12, "n": 2},
    ]
    mw.sql(session, "BEGIN")
    assert mw.sql(session, "SELECT max(n) AS n FROM read").to_pylist() == [{"n": 2}]
    mw.sql(session, "COMMIT")
    for statement in (
        "UPDATE read SET n = 1",
        "DELETE FROM read",
        "INSERT INTO read (id) VALUES (3)",
    ):
        with pytest.raises(mw.ReopenError, match="'p' int64 was added"):
            mw.sql(session, statement)
    mw.register(session, "read", tables["read"])
    assert mw.sql(session, "UPDATE read SET p = n").to_pylist() == [{"count": 2}]


@each("state", ["log", "flushed"])
def test_an_open_feed_keeps_the_columns_that_it_knows(tmp_path: Path, state: str) -> None:
    table = _created(str(tmp_path / "t"))
    feed = mw.open_table(table.uri).changes(columns=["id", "n", "f"])
    known = feed.schema
    _widen(table)
    table.add_columns(pa.field("p", pa.int64()))
    _upsert(table, {"id": 3, "n": 3, "f": 0.5})
    if state == "flushed":
        table.flush()
    rows = feed.read_all()
    assert rows.schema == known
    assert {(3, 3, 0.5)} >= {(r["id"], r["n"], r["f"]) for r in rows.to_pylist() if r["id"] == 3}
    if state == "log":
        feed = mw.open_table(table.uri).changes(columns=["id", "n"])
        assert [row["n"] for row in feed.read_all().to_pylist()].count(3) == 1
