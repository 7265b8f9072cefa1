"""By this package Spark finds format `memwal` by itself: it looks for modules named `pyspark_*`."""

from memwal_sql.spark.source import MemWalDataSource as DefaultSource

__all__ = ["DefaultSource"]
