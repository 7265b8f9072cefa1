"""Option `metadata`: a table that describes the table, such as its history or its files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from memwal_sql.errors import InvalidCallError
from memwal_sql.registration import METADATA_TABLES
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import arrow_schema, as_spark, spark_schema


def metadata_schema(options: Options, name: str) -> StructType:
    """The columns of a metadata table. Raises InvalidCallError for an unknown name, and for options
    that say nothing to one."""
    others = sorted(options.values.keys() - {"metadata"})
    if others:
        raise InvalidCallError(f"{others} have no meaning with metadata: leave them out")
    if name not in METADATA_TABLES:
        raise InvalidCallError(f"metadata={name!r} must be one of {list(METADATA_TABLES)}")
    return spark_schema(METADATA_TABLES[name][0])


class MetadataReader(DataSourceReader):
    """Reads the rows that a metadata table has when they are read, in one task."""

    def __init__(self, options: Options, schema: StructType, name: str) -> None:
        self._options = options
        self._schema = schema
        self._name = name

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, in Spark's types."""
        del partition
        target = arrow_schema(self._schema)
        columns, load = METADATA_TABLES[self._name]
        rows = load(table_of(self._options)).cast(columns).select(target.names)
        for batch in rows.to_batches():
            yield as_spark(batch, target)
