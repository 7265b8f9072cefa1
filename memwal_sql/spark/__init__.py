"""MemWAL tables in Spark: `register(spark)`, then format `memwal`; maintenance as Spark jobs."""

from __future__ import annotations

from pyspark.sql import SparkSession

from memwal_sql.spark.java import use_bundled_java
from memwal_sql.spark.maintenance import build_indexes, collect_garbage, merge, snapshot_regions
from memwal_sql.spark.regions import repartition_by_region
from memwal_sql.spark.source import MemWalDataSource

__all__ = [
    "MemWalDataSource",
    "build_indexes",
    "collect_garbage",
    "merge",
    "register",
    "repartition_by_region",
    "snapshot_regions",
    "use_bundled_java",
]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make format `memwal` known to a session, and let Spark hand its filters over.

    Filters reach a Python data source only while `spark.sql.python.filterPushdown.enabled` is
    true, which is not Spark's default, so this sets it. With `option("pushdown", "false")` a read
    goes without.
    """
    spark.conf.set(_PUSHDOWN, "true")
    parallelism = max(2, spark.sparkContext.defaultParallelism)
    # A class of the session's own: nothing else of a session reaches a data source.
    known = type("SessionDataSource", (MemWalDataSource,), {"parallelism": parallelism})
    spark.dataSource.register(known)
