"""A DataFrame or view keeps the snapshot of its first query, and says so when that is gone."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition

import memwal_sql as mw
from memwal_sql.spark.source import MemWalDataSource
from tests.model.writing import merge_rows
from tests.program import run
from tests.spark.frames import load

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


def test_a_view_keeps_its_rows_until_it_is_loaded_again(spark: SparkSession, uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": list(range(50)), "val": ["a"] * 50})
        load(spark, uri).createOrReplaceTempView("view")
        assert spark.table("view").count() == 50
        writer.upsert({"id": [0, 50], "val": ["b", "b"]})
        assert spark.table("view").count() == 50
        statement = "SELECT count(*), max(val) FROM view WHERE id >= 0"
        assert spark.sql(statement).collect() == [(50, "a")]
        load(spark, uri).createOrReplaceTempView("view")
        assert spark.sql(statement).collect() == [(51, "b")]


READ_ALL = """
import pickle, sys
for reader, share in pickle.load(sys.stdin.buffer):
    try:
        found = sorted(key for batch in reader.read(share) for key in batch["id"].to_pylist())
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    print(found)
"""


def read_elsewhere(cases: list[tuple[DataSourceReader, InputPartition]]) -> list[str]:
    """The keys of shares, or the errors, in a process that has read nothing before."""
    with TemporaryFile() as given:
        pickle.dump(cases, given)
        given.seek(0)
        done = run("-c", READ_ALL, stdin=given.fileno())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_rows_that_were_collected_say_what_helps(tmp_path: Path) -> None:
    """Wherever they were: in the WAL, in a generation, in an old version of the base."""
    cases, sources = [], []
    for number, condition in enumerate((None, "id = 3", "val = 'a'")):
        table = mw.create_table(tmp_path / f"table{number}", SCHEMA, "id")
        options = {} if condition is None else {"filter": condition}
        source = MemWalDataSource({"path": table.uri, **options})

        def pin(source: MemWalDataSource = source) -> None:
            reader = source.reader(source.schema())
            (share,) = reader.partitions()
            cases.append((reader, share))
            sources.append(source)

        with table.writer() as writer:
            for key in range(5):
                writer.upsert({"id": [key], "val": ["a"]})
            pin()
            writer.flush()
            pin()
        table.merge()
        pin()
        merge_rows(table, {"id": [9], "val": ["later"]})
    for number in range(3):
        table = mw.open_table(tmp_path / f"table{number}")
        table.collect_garbage(older_than=timedelta(0), versions_older_than=timedelta(0))
    found = read_elsewhere(cases)
    assert len(found) == 9
    for one in found:
        assert one.startswith(f"SourceGoneError: the rows of {tmp_path}/table")
        assert one.endswith("to run the same query again does not help")
    readers = [source.reader(source.schema()) for source in sources]
    anew = [(reader, *reader.partitions()) for reader in readers]
    expected = ["[0, 1, 2, 3, 4, 9]", "[3]", "[0, 1, 2, 3, 4]"]
    assert read_elsewhere(anew) == [one for one in expected for _ in range(3)]
