"""Reads the result of a DataFusion query: search functions, and other work that Spark can't push
down.

One task runs the query over one snapshot, so it sees one state of the table however often it names
it. Spark gets the result, to join it with anything else.
"""

from __future__ import annotations

from collections.abc import Iterator

import datafusion
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from exec_nodes.base.brief import shortened
from memwal_native.syntax import SqlParser
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.registration import mount
from memwal_sql.session.clauses import check_names_differ
from memwal_sql.session.errors import memwal_errors
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import as_spark, read_schema

_DEFAULT_NAME = "memwal"
# Spark may plan a read twice and run a task again: what changes something has no place in it.
_ONLY_READS = (
    datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)
# They are about rows of the table, and a query has rows of its own.
_OF_ROWS = ("columns", "filter", "rowsPerPartition")


def query_schema(options: Options, query: str) -> pa.Schema:
    """The columns of the result. Raises InvalidCallError for a query that can't be planned, that
    is more than a query, that gives two columns one name, or that has options which say nothing to
    one."""
    lost = [name for name in _OF_ROWS if name in options.values]
    if lost:
        raise InvalidCallError(
            f"{lost} have no meaning with query, which says itself what it reads: leave them out"
        )
    schema = _frame(options, query)[1].schema()
    check_names_differ(schema.names)
    return schema


class QueryReader(DataSourceReader):
    """Runs one query in one task."""

    def __init__(self, options: Options, schema: StructType, query: str) -> None:
        self._options = options
        self._schema = schema
        self._query = query

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The result, in Spark's types."""
        del partition
        target = read_schema(self._schema)
        context, frame = _frame(self._options, self._query)
        with memwal_errors():
            for part in frame.execute_stream():
                batch = part.to_pyarrow()
                yield as_spark(batch.select(target.names), target)
        del context  # what is mounted refers to its session, which must outlive the stream


def _frame(options: Options, query: str) -> tuple[datafusion.SessionContext, datafusion.DataFrame]:
    try:
        SqlParser.tokens(query)  # refuses a text that nests too deep
    except ValueError as error:
        raise InvalidCallError(f"query={query!r}: {error}") from error
    name = options.values.get("name", _DEFAULT_NAME)
    context = datafusion.SessionContext()
    table = table_of(options)
    mount(context, name, table, consistency=options.consistency)
    try:
        with memwal_errors():
            return context, context.sql_with_options(query, _ONLY_READS)
    except MemWalError:
        raise
    except Exception as error:  # DataFusion raises nothing more specific
        raise InvalidCallError(
            f"query={query!r} can't be planned: {shortened(str(error))}. The table is called "
            f'{name!r} in it; option("name", ...) gives it another name'
        ) from error
