"""Options mean the same by each way to write a table: by its path, with the jar and without it, and
as a table of a catalog. None is ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import memwal_sql as mw
from tests.soak import IS_SOAK
from tests.spark.conftest import needs_jar

SCHEMA = pa.schema({"id": pa.int32(), "v": pa.int32(), "at": pa.int32()})
BEFORE = [(1, 10, 5), (2, 20, 5)]
LATE, TWICE = "(1, 11, 4), (3, 30, 9) AS s(id, v, at)", "(1, 11, 7), (1, 12, 6) AS s(id, v, at)"
DELETED, SOME = "(1, 0, 0) AS s(id, v, at)", "(1, 11), (3, 30) AS s(id, v)"

Found = list[tuple[Any, ...]]
# Options, the rows that are written, and the rows of the table then or words of the error.
CASES: list[tuple[dict[str, str], str, Found | str]] = [
    ({}, LATE, [(1, 11, 4), (2, 20, 5), (3, 30, 9)]),
    ({"orderBy": "at"}, LATE, [*BEFORE, (3, 30, 9)]),
    ({"ORDERBY": "at"}, LATE, [*BEFORE, (3, 30, 9)]),
    ({"when": "t.v + 1 < s.v"}, LATE, [*BEFORE, (3, 30, 9)]),
    ({"when": "t.v < nothing"}, LATE, "nothing"),
    ({}, TWICE, r'option\("duplicates", "last"\)'),
    ({"duplicates": "last"}, TWICE, [(1, 12, 6), (2, 20, 5)]),
    ({"duplicates": "last", "orderBy": "at"}, TWICE, [(1, 11, 7), (2, 20, 5)]),
    ({"duplicates": "first"}, LATE, "duplicates='first' must be one of"),
    ({"operation": "delete"}, DELETED, [(2, 20, 5)]),
    ({"operation": "remove"}, DELETED, "operation='remove' must be one of"),
    ({"queryId": "q", "batchId": "1"}, LATE, [(1, 11, 4), (2, 20, 5), (3, 30, 9)]),
    ({"ordrBy": "at"}, LATE, "has no option 'ordr[bB]y': did you mean 'orderBy'"),
    ({"filter": "id = 1"}, LATE, "option 'filter' means nothing to writing"),
    ({"primaryKey": "v"}, LATE, "primary key"),
    ({"missing": "kept"}, SOME, "missing=.?kept"),
]
# Those of `missing` and of columns that the table lacks: by a path, and in a catalog.
COLUMNS: list[tuple[dict[str, str], str, Found | str, Found | str]] = [
    ({}, SOME, r"lack the columns \['at'\]", [(1, 11, None), (2, 20, 5), (3, 30, None)]),
    (
        {"missing": "keep"},
        SOME,
        [(1, 11, 5), (2, 20, 5), (3, 30, None)],
        r"missing=keep would be ignored: .*save\(",
    ),
    (
        {"deleteColumn": "gone"},
        "(1, 0, 0, true) AS s(id, v, at, gone)",
        [(2, 20, 5)],
        "TOO_MANY_DATA_COLUMNS",
    ),
    (
        {"mergeSchema": "true"},
        "(1, 11, 4, 7) AS s(id, v, at, more)",
        [(1, 11, 4, 7), (2, 20, 5, None)],
        "TOO_MANY_DATA_COLUMNS",
    ),
]


def write(frame: DataFrame, way: str, uri: str, options: dict[str, str]) -> None:
    """As one task, which sees equal keys in order."""
    frame, name = frame.coalesce(1), f"ways.{Path(uri).stem}"
    if way == "writeTo":
        frame.writeTo(name).options(**options).append()
    elif way == "saveAsTable":
        frame.write.mode("append").options(**options).saveAsTable(name)
    elif way == "INSERT":
        frame.createOrReplaceTempView("given")
        given = ", ".join(f"{name} = '{value}'" for name, value in options.items())
        clause = f"WITH ({given}) " if given else ""
        frame.sparkSession.sql(f"INSERT INTO {name} {clause}BY NAME SELECT * FROM given")
    else:
        frame.write.format(way).mode("append").options(**options).save(uri)


@pytest.mark.parametrize("form", ["path", pytest.param("catalog", marks=needs_jar)])
def test_options_mean_the_same_by_each_way_to_write(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    spark.conf.set("spark.sql.catalog.ways", "io.memwal.spark.MemwalCatalog")
    spark.conf.set("spark.sql.catalog.ways.root", str(tmp_path))
    ways = ["memwal_python", "memwal"] if form == "path" else ["writeTo", "saveAsTable", "INSERT"]
    cases = [*CASES, *((*c[:2], c[2] if form == "path" else c[3]) for c in COLUMNS)]
    wrong = {}
    for number, (options, rows, expected) in enumerate(cases):
        for way in ways if IS_SOAK else [ways[number % len(ways)]]:
            uri = f"{tmp_path}/t{number}_{way}.lance"
            table = mw.create_table(uri, SCHEMA, "id")
            with table.writer() as writer:
                writer.upsert([dict(zip(SCHEMA.names, row, strict=True)) for row in BEFORE])
            frame = spark.sql(f"SELECT * FROM VALUES {rows}")
            if isinstance(expected, str):
                with pytest.raises(PySparkException, match=expected):
                    write(frame, way, uri, options)
                expected_rows = BEFORE
            else:
                write(frame, way, uri, options)
                expected_rows = expected
            found = mw.open_table(uri).to_arrow().sort_by("id").to_pylist()
            if [tuple(row.values()) for row in found] != expected_rows:
                wrong[way, str(options)] = found
    assert not wrong


@needs_jar
def test_options_of_statements_that_make_or_replace_rows_are_not_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.catalog.made", "io.memwal.spark.MemwalCatalog")
    spark.conf.set("spark.sql.catalog.made.root", str(tmp_path))
    rows = spark.sql(f"SELECT * FROM VALUES {TWICE}").coalesce(1)

    def made(**options: str) -> Any:
        return rows.writeTo("made.t").tableProperty("primaryKey", "id").options(**options)

    for options, words in (
        ({"ordrBy": "at"}, "did you mean 'orderBy'"),
        ({"missing": "keep"}, "missing=keep would be ignored"),
    ):
        with pytest.raises(PySparkException, match=words):
            made(**options).create()
        assert spark.sql("SHOW TABLES IN made").collect() == []
    made(orderBy="at").create()
    for options, words in (
        ({"ordrBy": "at"}, "did you mean 'orderBy'"),
        ({"when": "true"}, r'belong to mode\("append"\)'),
    ):
        with pytest.raises(PySparkException, match=words):
            made(**options).createOrReplace()
        with pytest.raises(PySparkException, match=words):
            made(**options).overwrite(sf.lit(True))
    assert spark.table("made.t").collect() == [(1, 11, 7)]
