"""Lazy frames of polars, and datasets for DuckDB: the same answers as from the rows in memory, for
which only some columns and rows are read."""

from __future__ import annotations

import datetime
import math
import operator
import pickle
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any
from unittest.mock import patch

import datafusion
import duckdb
import lance
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from polars import col

import memwal_sql as mw
from memwal_sql.table import scanning
from tests.each import each

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int8(),
        "s": pa.string(),
        "x": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("ms", "UTC"),
        "ok": pa.bool_(),
    }
)
FLOATS = [None, math.nan, -math.nan, 0.0, -0.0, 0.5, math.inf]
DAY, TIME = datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def row(key: int) -> dict[str, Any]:
    return {
        "id": key,
        "n": key % 100 if key % 7 else None,
        "s": [None, "a", "b'c", "é"][key % 4],
        "x": FLOATS[key % len(FLOATS)],
        "day": DAY + datetime.timedelta(key) if key % 5 else None,
        "at": TIME + datetime.timedelta(seconds=key),
        "ok": [None, True, False][key % 3],
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    """Rows in the base table, in generations and in memory."""
    place = tmp_path_factory.mktemp("pushdown") / "t"
    table = mw.create_table(place, SCHEMA, "id", "bucket(id, 4)")
    writer = table.writer()
    for ids in (range(200), range(50, 250), range(240, 300)):
        writer.upsert([row(key) for key in ids])
        writer.delete([ids.start])
        if ids.start < 240:
            writer.flush()
        if not ids.start:
            table.merge()
    return table


Scans = list[tuple[Any, Any, int]]


@pytest.fixture
def scans() -> Iterator[Scans]:
    """The columns, the condition and the rows of each scan."""
    noted: Scans = []
    scan = scanning.known_rows

    def noting(self: Any, then: Any, condition: Any, level: Any, columns: Any, *more: Any) -> Any:
        rows = scan(self, then, condition, level, columns, *more).read_all()
        noted.append((list(columns), condition, rows.num_rows))
        return rows.to_reader()

    with patch.object(scanning, "known_rows", noting):
        yield noted


def sorted_rows(frame: Any) -> Any:
    """Rows in an order; NaN as text, as it does not equal itself."""
    rows = [[str(v) if isinstance(v, float) else v for v in row] for row in frame.rows()]
    return sorted(rows, key=str)


def conjuncts(condition: str | None) -> list[str]:
    """In any order, as polars takes them in one of its own."""
    parts = (condition or "").replace('"', "").removeprefix("(").removesuffix(")").split(" AND ")
    return sorted(part.strip("()") for part in parts)


PREDICATES = [
    (col("id") == 7, "id = 7", 1),
    (col("id") > 290, "id > 290", 9),
    (col("id") >= 7, "id >= 7", None),
    (col("id").is_in([3, 4, 999]), "id IN (3, 4, 999)", 2),
    (col("id").is_between(10, 12), "id BETWEEN 10 AND 12", 3),
    ((col("id") > 5) & (col("s") == "a"), "(id > 5) AND (s = 'a')", None),
    ((col("id") == 5) | (col("s") == "b'c"), "(id = 5) OR (s = 'b''c')", None),
    ((col("id") < 9) & (col("x") > 0.0), "(id < 9)", 8),
    ((col("id") == 9) | (col("x") > 0.0), None, None),
    (col("s").is_null(), "s IS NULL", None),
    (col("s").is_not_null() & (col("n") != 3), "(s IS NOT NULL) AND (n <> 3)", None),
    (col("s").is_in(["é", None]), "s IN ('é')", None),
    (col("n") == 300, None, None),
    (col("day") <= DAY, "day <= arrow_cast(20455,'Date32')", None),
    (col("at") < TIME, "at < arrow_cast(1767312000000,'Timestamp(Millisecond, Some(UTC))')", 0),
    (col("at").dt.hour() == 0, None, None),
    (~(col("id") > 20), "id <= 20", None),
    (col("ok"), None, None),
    (~col("ok"), None, None),
    (col("id") == polars.lit(None), None, None),
    (col("n").eq_missing(None), "n IS NULL", None),
    (col("n") == col("id"), None, None),
    (col("id") % 2 == 1, None, None),
    (col("id") > col("id").mean(), None, None),
    *(
        (compared(col("x"), value), None, None)
        for value in (0.0, -0.0, 0.5, math.nan)
        for compared in (operator.eq, operator.ne, operator.lt, operator.ge)
    ),
]


@each("engine", ["in-memory", "streaming"])
@each("predicate, text, count", PREDICATES)
def test_a_lazy_frame_has_the_rows_of_the_frame(
    table: mw.Table, scans: Scans, engine: Any, predicate: Any, text: str | None, count: int | None
) -> None:
    frame = table.to_polars().filter(predicate)
    lazy = table.to_polars(lazy=True).filter(predicate)
    scans.clear()
    assert sorted_rows(lazy.collect(engine=engine)) == sorted_rows(frame)
    [(columns, condition, read)] = scans
    assert columns == SCHEMA.names
    assert conjuncts(condition) == conjuncts(text and f"({text})")
    assert read == (count if count is not None else read) >= frame.height


def test_a_lazy_frame_reads_what_its_query_needs(table: mw.Table, scans: Scans) -> None:
    lazy = table.to_polars(lazy=True)
    assert lazy.collect_schema() == table.to_polars().schema
    scans.clear()
    assert lazy.select(polars.len()).collect().item() == 297
    assert lazy.filter(col("id") > 290).select("s").collect().width == 1
    assert lazy.head(5).collect().height == 5
    assert lazy.head(5).filter(col("id") < 0).collect().height == 0
    assert lazy.filter(col("id") > 290).head(3).collect().height == 3
    assert lazy.group_by("ok").agg(col("n").sum()).collect().height == 3
    some = table.to_polars(["id", "n"], "id < 100", 50, lazy=True)
    assert some.filter(col("n") >= 0).collect().height < 50
    assert some.filter(col("n") >= 0).collect_schema().names() == ["id", "n"]
    assert [(len(columns), condition, rows) for columns, condition, rows in scans] == [
        (1, None, 297),
        (2, '("id" > 290)', 9),
        (7, None, 5),
        (7, None, 5),
        (7, '("id" > 290)', 9),
        (2, None, 297),
        (2, "(id < 100)", 50),
    ]


def test_a_predicate_of_any_size_is_taken(table: mw.Table) -> None:
    lazy = table.to_polars(lazy=True)
    parts = [col("id") != key for key in range(200)]
    assert lazy.filter(reduce(operator.and_, parts)).collect().height == 99
    assert lazy.filter(reduce(operator.or_, parts)).collect().height == 297


def test_a_lazy_frame_is_read_anew_each_time(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    lazy = table.to_polars(lazy=True).filter(col("id") > 1)
    assert lazy.collect().is_empty()
    with table.writer() as writer:
        writer.upsert([row(1), row(2)])
    assert lazy.collect()["id"].to_list() == [2]


QUERIES = [
    ("SELECT * FROM t", SCHEMA.names, 297),
    ("SELECT s FROM t WHERE id = 7", ["id", "s"], 1),
    ("SELECT count(*) FROM t", ["id"], 297),
    ("SELECT n, s FROM t WHERE id IN (3, 4, 999)", ["id", "n", "s"], 2),
    ("SELECT id FROM t WHERE s = 'a' OR x > 0.25", ["id", "s", "x"], None),
    *(
        (f"SELECT id FROM t WHERE x {sign} {value}", ["id", "x"], None)
        for sign in ("=", "<>", "<", ">=")
        for value in ("0.0", "-0.0", "0.5", "'nan'")
    ),
    ("SELECT sum(n) FROM t WHERE day > DATE '2026-03-01' AND ok", ["n", "day", "ok"], None),
    ('SELECT max("at") FROM t WHERE "at" < TIMESTAMPTZ \'2026-01-02 00:01:00+00\'', ["at"], 58),
    ("SELECT id FROM t WHERE s IS NULL ORDER BY id LIMIT 3", ["id", "s"], None),
    ("SELECT a.id, b.s FROM t a JOIN t b ON a.id = b.n", None, None),
]


@each("query, columns, count", QUERIES)
def test_duckdb_reads_what_its_query_needs(
    table: mw.Table, query: str, columns: list[str] | None, count: int | None
) -> None:
    read: Scans = []

    class Counted(type(table.to_dataset())):  # type: ignore[misc]
        def scanner(self, *args: Any, **options: Any) -> ds.Scanner:
            rows = super().scanner(*args, **options).to_table()
            read[-1] = (*read[-1][:2], rows.num_rows)
            return ds.Scanner.from_batches(rows.to_reader())

    def scan(names: list[str]) -> Any:
        read.append((names, None, 0))
        return table.scan(names)

    def answer(rows: Any) -> Any:
        with duckdb.connect() as connection:
            connection.register("t", rows)
            return sorted(map(str, connection.execute(query).fetchall()))

    expected = answer(table.to_arrow())
    assert answer(Counted(table.schema, scan)) == expected
    assert {len(names) for names, *_ in read} == {len(columns or ["id", "s"])} or columns is None
    assert columns is None or [names for names, *_ in read] == [columns]
    assert count is None or read[0][2] == count


def test_a_dataset_is_what_readers_of_datasets_expect(table: mw.Table) -> None:
    dataset = table.to_dataset("id < 10")
    assert dataset.schema == table.schema
    ids = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for one in (dataset, pickle.loads(pickle.dumps(dataset))):
        assert sorted(one.to_table(columns=["id"])["id"].to_pylist()) == ids
        assert one.count_rows(filter=pc.field("n") > 4) == 4
    assert dataset.head(2, columns=["s"]).shape == (2, 1)
    double = dataset.to_table(columns={"d": pc.field("id") * 2}, filter=pc.field("id") == 4)
    assert double.to_pylist() == [{"d": 8}]
    scanned = polars.scan_pyarrow_dataset(dataset).filter(col("id") > 3).select("s").collect()
    assert scanned.height == 6
    with pytest.raises(pa.ArrowInvalid, match="nothing"):
        dataset.to_table(columns=["nothing"])


def datafusion_count(dataset: ds.Dataset) -> Any:
    context = datafusion.SessionContext()
    context.register_dataset("t", dataset)
    return context.sql("SELECT count(id) FROM t").to_pylist()


@each(
    "use",
    [
        lambda dataset: ds.Scanner.from_dataset(dataset).to_table(),
        lambda dataset: dataset.filter(pc.field("id") > 1),
        lambda dataset: dataset.join(pa.table({"id": [1]}), "id"),
        lambda dataset: dataset.sort_by("id"),
        lambda dataset: dataset.replace_schema(dataset.schema).to_table(),
        lambda dataset: ds.dataset([dataset]).to_table(),
        lambda dataset: next(dataset.get_fragments()).to_table(),
        lambda dataset: lance.write_dataset(dataset, "memory://"),
        lambda dataset: datafusion_count(dataset),
    ],
)
def test_what_goes_past_the_scanner_is_refused(
    table: mw.Table, use: Callable[[ds.Dataset], Any]
) -> None:
    with pytest.raises(Exception, match="read by its scanner"):
        use(table.to_dataset())


def test_readers_that_the_manual_names_read_a_dataset(table: mw.Table, tmp_path: Path) -> None:
    dataset = table.to_dataset()
    ds.write_dataset(dataset, tmp_path / "files", format="parquet")
    copy = mw.create_table(tmp_path / "copy", SCHEMA, "id")
    with copy.writer() as writer:
        writer.upsert(dataset)
    frame = polars.scan_pyarrow_dataset(dataset).collect()
    counts = [ds.dataset(tmp_path / "files").count_rows(), copy.count_rows(), frame.height]
    assert counts == [table.count_rows()] * 3
    scanner = dataset.scanner()
    scanner.to_table()
    with pytest.raises(pa.ArrowInvalid, match="already scanned"):
        scanner.to_table()
