"""The data source that Spark knows as format `memwal`."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from memwal_sql.errors import InvalidCallError
from memwal_sql.spark.options import READ, STREAM_WRITE, WRITE, Options, parse_options
from memwal_sql.spark.reader import BatchReader, FilteringReader
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import spark_schema
from memwal_sql.spark.writer import BatchWriter, StreamWriter


class MemWalDataSource(DataSource):
    """Reads and writes MemWAL tables; see the README for its options."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` says."""
        return "memwal"

    def schema(self) -> StructType:
        """The table's columns, those of option `columns`, or those of a query's result."""
        options = self._read_options()
        schema = table_of(options, options.number("version")).schema
        names = options.names("columns")
        if names is None:
            return spark_schema(schema)
        unknown = [name for name in names if name not in schema.names]
        if unknown or len(set(names)) != len(names):
            raise InvalidCallError(
                f"columns={list(names)}: each must be one of {schema.names}, once"
            )
        return spark_schema(schema.empty_table().select(list(names)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads `schema`'s columns."""
        options = self._read_options()
        if options.flag("pushdown", True):
            return FilteringReader(options, schema)
        return BatchReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a DataFrame."""
        options = parse_options(self.options, WRITE, "writing")
        return BatchWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes the batches of a streaming query."""
        options = parse_options(self.options, STREAM_WRITE, "a streaming write")
        return StreamWriter(options, schema, overwrite=overwrite)

    def _read_options(self) -> Options:
        return parse_options(self.options, READ, "reading")
