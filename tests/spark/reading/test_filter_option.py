"""Option `filter` makes a relation of the rows that meet a condition, exactly, however it is shared
out. Readers are asked here as Spark asks them, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.spark.options import READ, parse_options
from memwal_sql.spark.reader import Share
from memwal_sql.spark.source import MemWalDataSource
from tests.each import each

SCHEMA = pa.schema(
    {"id": pa.int64(), "word": pa.string(), "number": pa.float64(), "a \"b'": pa.int32()}
)
WORDS = ("a'b", "a''b", "a''''b", "\\' OR true --", "", None, "x%y", "ä", "a_b", "\\", "a\nb", "/*")
NUMBERS = (0.0, -0.0, float("nan"), float("inf"), None, 1.5)
CONDITIONS = [
    "id = 7",
    "id IN (1, 2, 1000)",
    "id BETWEEN 10 AND 20 AND word IS NOT NULL",
    "id = 7 OR word = 'ä'",
    "word = 'a''b'",
    "word = 'a''''b'",
    "word = 'a''''''''b'",
    "word IN ('a''''b', '\\', '/*')",
    "word = 'a\nb' -- a remark",
    "word = '\\'",
    "word = E'a\\nb'",
    "word = 'ä' /* and 'more' */",
    "word = '\\'' OR true --'",
    "word LIKE 'a%'",
    "word LIKE 'x\\%y'",
    "word <> ''",
    "word IS NULL OR number = 'NaN'",
    "number > 1",
    "number = 0",
    'abs("a ""b\'") % 3 = 1',
    "length(word) > 3",
    "1 = 0",
    "id IN (SELECT 7)",
    "true",
    "NULL",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    """Rows in the base, in generations and in the WAL."""
    made = mw.create_table(
        tmp_path_factory.mktemp("filter") / "table", SCHEMA, "id", [mw.bucket("id", 3)]
    )
    with made.writer() as writer:
        for first in (0, 30, 60):
            writer.upsert([_row(key) for key in range(first, first + 40)])
            writer.delete([first + 1])
            if first < 60:
                writer.flush()
            if first == 0:
                made.merge()
    return made


def _row(key: int) -> dict[str, Any]:
    return {
        "id": key,
        "word": WORDS[key % len(WORDS)],
        "number": NUMBERS[key % len(NUMBERS)],
        "a \"b'": key - 20,
    }


def read(
    uri: str, table_schema: pa.Schema = SCHEMA, **options: str
) -> tuple[list[Share], pa.Table]:
    """The shares of a read, and their rows, each read as by a process of its own."""
    source = MemWalDataSource({"path": uri, **options})
    reader = source.reader(source.schema())
    shares = list(reader.partitions())
    batches = []
    for share in shares:
        apart, part = pickle.loads(pickle.dumps((reader, share)))
        batches += list(apart.read(part))
    names = [
        name.strip() for name in options.get("columns", ",".join(table_schema.names)).split(",")
    ]
    schema = pa.schema([table_schema.field(name) for name in names])
    return shares, pa.Table.from_batches([one.cast(schema) for one in batches], schema)


@each("condition", CONDITIONS)
def test_the_rows_are_those_that_sql_gives(table: mw.Table, condition: str) -> None:
    context = datafusion.SessionContext()
    context.from_arrow(table.scan().read_all(), "t")
    expected = context.sql(f"SELECT id FROM t WHERE {condition}").to_pydict().get("id", [])
    for share in ({}, {"rowsPerPartition": "400"}):
        _, found = read(table.uri, filter=condition, columns="id", **share)
        assert sorted(found["id"].to_pylist()) == sorted(expected)


def test_a_filter_on_the_key_makes_one_task_that_looks_up(table: mw.Table) -> None:
    shares, found = read(table.uri, filter="id IN (7, 45)", rowsPerPartition="5")
    assert [share.whole for share in shares] == [True]
    assert sorted(found["id"].to_pylist()) == [7, 45]
    shares, _ = read(table.uri, filter="number > 0", rowsPerPartition="400")
    assert len(shares) > 3


def test_a_filter_is_of_the_state_that_is_read(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert([_row(key) for key in range(10)])
        writer.flush()
        version = table.snapshot_regions()
        writer.delete([3])
        writer.flush()
    table.merge()
    assert read(table.uri, filter="id = 3", version=str(version))[1]["id"].to_pylist() == [3]
    assert read(table.uri, filter="id = 3")[1].num_rows == 0


@pytest.mark.parametrize("condition", ["nothing = 1", "id =", "", "id"])
def test_a_condition_that_is_none_is_refused_before_anything_is_read(
    table: mw.Table, condition: str
) -> None:
    source = MemWalDataSource({"path": table.uri, "filter": condition})
    with pytest.raises(mw.InvalidCallError, match="filter="):
        source.schema()


def test_options_say_where_a_filter_belongs(table: mw.Table) -> None:
    source = MemWalDataSource({"path": table.uri, "filter": "id = 1", "query": "SELECT 1"})
    with pytest.raises(mw.InvalidCallError, match=r"\['filter'\] have no meaning with query"):
        source.schema()
    with pytest.raises(mw.InvalidCallError, match="no option 'pushdown'"):
        parse_options({"path": table.uri, "pushdown": "true"}, READ, "reading")


@each(
    "condition, date",
    [
        ("at < '1600-01-01'", "1600-01-01"),
        ("at > timestamp '3000-01-01T01:02:03'", "3000-01-01 01:02:03"),
        ("nanos > '3000-01-01'", "3000-01-01"),
    ],
)
def test_a_date_beyond_nanoseconds_is_named_with_what_to_write(
    tmp_path: Path, condition: str, date: str
) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us"), "nanos": pa.timestamp("ns")})
    table = mw.create_table(tmp_path / "table", schema, "id")
    source = MemWalDataSource({"path": table.uri, "filter": condition})
    with pytest.raises(mw.InvalidCallError) as caught:
        source.schema()
    first, remedy = str(caught.value).split("\n")
    assert "Overflow converting" in first and date in first
    assert f"arrow_cast('{date}', 'Timestamp(Microsecond, None)')" in remedy
    right = f"at < arrow_cast('{date}', 'Timestamp(Microsecond, None)')"
    assert read(table.uri, schema, filter=right)[1].num_rows == 0
