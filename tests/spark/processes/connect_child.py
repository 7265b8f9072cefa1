"""A program that talks to Spark by Spark Connect alone: a write and reads, printed."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(uri: str, jars: str) -> None:
    """With a server of its own; `jars` is the setting `spark.jars`."""
    builder = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    spark = builder.config("spark.jars", jars).getOrCreate()
    frame = spark.createDataFrame([(1, "Oslo"), (2, "Rome")], "id bigint not null, city string")
    frame.write.format("memwal").mode("append").option("primaryKey", "id").save(uri)
    table = spark.read.format("memwal").load(uri)
    sys.stdout.write(f"{table.where('id = 2').collect()} {table.count()}\n")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
