"""The data source that Spark knows as format `memwal`."""

from __future__ import annotations

import os

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from memwal_sql.errors import InvalidCallError
from memwal_sql.session.filter_text import implied
from memwal_sql.spark.metadata_reader import MetadataReader, metadata_schema
from memwal_sql.spark.options import READ, STREAM_READ, STREAM_WRITE, WRITE, Options, parse_options
from memwal_sql.spark.query_reader import QueryReader, query_schema
from memwal_sql.spark.reader import BatchReader
from memwal_sql.spark.stream_reader import ChangeReader, stream_schema
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import spark_schema
from memwal_sql.spark.writer import BatchWriter, StreamWriter


class MemWalDataSource(DataSource):
    """Reads and writes MemWAL tables; see docs/spark.md for its options.

    `parallelism` is how many tasks run at once. Nothing of a session reaches a data source, so it
    is the number of the driver's processors, unless `register` gives a session its own class.
    """

    parallelism = os.cpu_count() or 1

    @classmethod
    def name(cls) -> str:
        """The name for `format(...)`."""
        return "memwal"

    def schema(self) -> StructType:
        """The table's columns, those of option `columns`, or those of a query's result."""
        if self.options.get("changes", "").lower() == "true":
            return spark_schema(stream_schema(self._stream_options()))
        options = self._read_options()
        metadata = options.values.get("metadata")
        if metadata is not None:
            return metadata_schema(options, metadata)
        query = options.values.get("query")
        if query is not None:
            return spark_schema(query_schema(options, query))
        if "name" in options.values:
            raise InvalidCallError("name is what a query calls the table: it needs option query")
        schema = table_of(options).schema
        condition = options.values.get("filter")
        if condition is not None:
            implied(condition, schema)
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
        metadata = options.values.get("metadata")
        if metadata is not None:
            return MetadataReader(options, schema, metadata)
        query = options.values.get("query")
        if query is not None:
            return QueryReader(options, schema, query)
        return BatchReader(options, schema, self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a DataFrame."""
        options = parse_options(self.options, WRITE, "writing")
        return BatchWriter(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes the batches of a streaming query."""
        options = parse_options(self.options, STREAM_WRITE, "a streaming write")
        return StreamWriter(options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Follows the table's changes."""
        options = self._stream_options()
        if not options.flag("changes", False):
            raise InvalidCallError(
                "a table streams its changes, which have more columns than its rows: say so with "
                'option("changes", "true")'
            )
        return ChangeReader(options, schema)

    def _stream_options(self) -> Options:
        return parse_options(self.options, STREAM_READ, "a streaming read")

    def _read_options(self) -> Options:
        return parse_options(self.options, READ, "reading")
