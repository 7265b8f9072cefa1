"""A program of its own, for machines without Java: it writes a table by Spark and reads it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from memwal_sql.spark import register, use_bundled_java


def main(uri: str, report: str) -> None:
    """Reports the Java runtime, and how many rows there are."""
    use_bundled_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "512m")
    spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
    register(spark)
    frame = spark.range(0, 100, 1, 1)
    frame.write.format("memwal").mode("append").option("primaryKey", "id").save(uri)
    java = spark.sparkContext._jvm
    assert java is not None
    count = spark.read.format("memwal").load(uri).count()
    Path(report).write_text(f"{java.java.lang.System.getProperty('java.home')} {count}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
