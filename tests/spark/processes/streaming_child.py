"""A driver of its own that streams a folder of Parquet files into a table until it is killed."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def main(feed: str, uri: str, checkpoint: str) -> None:
    """A file a batch, without end."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    spark = builder.config("spark.local.dir", f"{checkpoint}.scratch").getOrCreate()
    files = spark.readStream.schema("id long, val string").option("maxFilesPerTrigger", 1)
    writer = files.parquet(feed).writeStream.format("memwal")
    writer.option("checkpointLocation", checkpoint).start(uri).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
