"""Others write while a statement of Spark runs: it sees that at its commit, and writes nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.soak import SOAK, usual
from tests.spark.catalog.conftest import Sql
from tests.spark.conftest import needs_jar

pytestmark = needs_jar

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("name", pa.string())]
)
Row = tuple[int, int | None, str | None]
START: list[Row] = [(key, key, "old") for key in range(6)]
# Its value is 0. It is computed once the statement has read the table's state.
OTHER = "(SELECT max(other(id)) FROM range(1))"


def new_table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", [mw.bucket("id", 2)])
    put(table, *START)
    return table


def put(table: mw.Table, *rows: Row) -> None:
    with table.writer() as writer:
        writer.upsert([dict(zip(SCHEMA.names, row, strict=True)) for row in rows])


def write_other_key(table: mw.Table) -> None:
    put(table, (99, 99, "other"))


def write_same_values(table: mw.Table) -> None:
    put(table, (2, 2, "old"))


def write_row(table: mw.Table) -> None:
    put(table, (2, 200, "other"))


def delete_row(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.delete([2])


def insert_row(table: mw.Table) -> None:
    put(table, (70, 1, "other"))


def move_rows(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.flush()
    table.merge()
    table.compact()


def merge_new_value(table: mw.Table) -> None:
    write_row(table)
    move_rows(table)


def replace_all(table: mw.Table) -> None:
    table.replace_rows(pa.table({"id": [2, 3], "n": [2, 30], "name": ["old"] * 2}, SCHEMA))


def add_column(table: mw.Table) -> None:
    table.add_columns([pa.field("more", pa.int64())])


def drop(table: mw.Table) -> None:
    mw.drop_table(table.uri)


def make_again(table: mw.Table) -> None:
    drop(table)
    new_table(table.uri).close()


UPDATE = f"UPDATE x.t SET n = n + 10 + {OTHER} WHERE id < 3"
DELETE = f"DELETE FROM x.t WHERE id < 3 + {OTHER} AND id % 2 = 0"
SOURCE = f"(SELECT id * 35 AS id FROM range(1, 3) WHERE id >= {OTHER})"
MERGE = (
    f"MERGE INTO x.t AS t USING {SOURCE} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 5 "
    "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 7) "
    "WHEN NOT MATCHED BY SOURCE AND t.id = 2 THEN DELETE"
)
INSERTS = (
    f"MERGE INTO x.t AS t USING {SOURCE} AS s ON t.id = s.id "
    "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 7)"
)
# A statement, what others do meanwhile, and what the statement says; None where it succeeds.
CASES: list[tuple[str, Callable[[mw.Table], None], str | None]] = [
    (UPDATE, write_other_key, None),
    (UPDATE, write_same_values, None),
    (UPDATE, move_rows, None),
    (UPDATE, write_row, r"ConflictError: others wrote the keys \['2'\] .* run it again"),
    (UPDATE, delete_row, r"ConflictError: others wrote the keys \['2'\]"),
    (UPDATE, merge_new_value, r"ConflictError: others wrote the keys \['2'\]"),
    (UPDATE, replace_all, r"ConflictError: others wrote the keys \['0', '1'\]"),
    (UPDATE, add_column, "ReopenError: the columns of .* have changed since the statement"),
    (UPDATE, drop, "is not a Lance table"),
    (UPDATE, make_again, "ReopenError: the table of .* was dropped or made anew"),
    (DELETE, write_other_key, None),
    (DELETE, write_row, r"ConflictError: others wrote the keys \['2'\]"),
    (MERGE, write_other_key, None),
    (MERGE, write_row, r"ConflictError: others wrote the keys \['2'\]"),
    (MERGE, insert_row, r"ConflictError: others wrote the keys \['70'\]"),
    (INSERTS, write_row, None),
    (INSERTS, insert_row, r"KeysExistError: other rows of .*, such as \[70\]: nothing was written"),
]
AFTER: dict[str, dict[int, Row | None]] = {
    UPDATE: {key: (key, key + 10, "old") for key in range(3)},
    DELETE: {0: None, 2: None},
    MERGE: {2: None, 35: (35, 7, None), 70: (70, 7, None)},
    INSERTS: {35: (35, 7, None), 70: (70, 7, None)},
}


def rows(uri: str) -> dict[int, Row]:
    with mw.open_table(uri) as table:
        found = table.to_arrow(SCHEMA.names).to_pylist()
    return {row["id"]: (row["id"], row["n"], row["name"]) for row in found}


@pytest.fixture
def meanwhile(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Sets what `other` does to the table, once."""

    def set_to(change: Callable[[mw.Table], None]) -> None:
        uri, done = str(tmp_path / "t.lance"), tmp_path / change.__name__

        def other(_: int) -> int:
            with suppress(FileExistsError):
                os.close(os.open(done, os.O_CREAT | os.O_EXCL))
                with mw.open_table(uri) as table:
                    change(table)
            return 0

        done.unlink(missing_ok=True)
        spark.udf.register("other", other, "bigint")

    yield set_to
    spark.sql("DROP TEMPORARY FUNCTION IF EXISTS other")


def test_what_others_wrote_meanwhile_is_kept_or_refused(
    sql: Sql, tmp_path: Path, meanwhile: Callable[..., None]
) -> None:
    uri = str(tmp_path / "t.lance")
    new_table(uri).close()
    for statement, change, words in usual(CASES, 5):
        meanwhile(change)
        if words is None:
            sql(statement)
        else:
            with pytest.raises(PySparkException, match=words):
                sql(statement)
        if change is drop:
            assert not Path(uri).exists()
        else:
            found = rows(uri)
            mw.drop_table(uri)
        with new_table(uri) as table:
            change(table)
        expected = {} if change is drop else rows(uri)
        if change is not drop:
            changed = {} if words is not None else AFTER[statement]
            merged = {**expected, **changed}
            assert found == {key: row for key, row in merged.items() if row}, (statement, change)
            mw.drop_table(uri)
        new_table(uri).close()


def test_two_jobs_and_a_writer_lose_no_update(sql: Sql, tmp_path: Path) -> None:
    """Each adds to the same rows, again after a conflict."""
    uri = str(tmp_path / "t.lance")
    new_table(uri).close()
    times, done = 2 * SOAK, threading.Event()

    def add(_: int) -> int:
        tries = 0
        for _ in range(times):
            while True:
                tries += 1
                try:
                    sql("UPDATE x.t SET n = n + 1 WHERE id % 2 = 0")
                    break
                except PySparkException as error:
                    assert "ConflictError" in str(error) or "FencedError" in str(error), error
        return tries

    def write() -> None:
        """Rows of the jobs too, but seldom: each time they begin again."""
        with mw.open_table(uri) as table, table.writer() as writer:
            for number in range(20):
                key = 4 if number in (2, 15) else 5
                writer.update({"n": "n + 100"}, where=f"id = {key}")
                if done.wait(0.1):
                    break

    with ThreadPoolExecutor(3) as threads:
        jobs = [threads.submit(add, number) for number in range(2)]
        writer = threads.submit(write)
        try:
            tries = [job.result() for job in jobs]
        finally:
            done.set()
    assert sum(tries) >= 2 * times
    writer.result()
    found = rows(uri)
    assert [found[key][1] for key in (0, 1, 2, 3)] == [2 * times, 1, 2 + 2 * times, 3]
    assert (found[4][1] or 0) % 100 == 4 + 2 * times
