"""Writing and reading tables by Spark, in one line, and settings for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf


def save(frame: DataFrame, uri: str, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("memwal").mode(mode)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save(uri)


def load(spark: SparkSession, uri: str, **options: Any) -> DataFrame:
    reader = spark.read.format("memwal")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(uri)


def rows(frame: DataFrame) -> dict[int, str]:
    """`val` by `id`; every id must be there once."""
    found = frame.collect()
    result = {row["id"]: row["val"] for row in found}
    assert len(result) == len(found), "a key came twice"
    return result


def frame(spark: SparkSession, first: int, last: int, val: str, parts: int = 2) -> DataFrame:
    """The keys from `first` up to `last`, exclusive, all with the same value."""
    return spark.range(first, last, 1, parts).select("id", sf.lit(val).alias("val"))


def twice(spark: SparkSession, keys: int) -> DataFrame:
    """Every key from two tasks: with `x` from the first, with `y` from the second."""
    val = sf.when(sf.col("id") < keys, "x").otherwise("y").alias("val")
    return spark.range(0, 2 * keys, 1, 2).select((sf.col("id") % keys).alias("id"), val)


def refusal(call: Callable[[], Any]) -> str:
    """The message of the error that `call` raises."""
    with pytest.raises(PySparkException) as caught:
        call()
    return str(caught.value)


@contextmanager
def settings(spark: SparkSession, **given: str) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in given}
    for name, value in given.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, kept in before.items():
            spark.conf.set(name, str(kept))
