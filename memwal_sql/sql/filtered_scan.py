"""`table.scan` with a condition: DataFusion parses it, so it means there what it means in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import datafusion
import pyarrow as pa

from memwal_native import MountedTable
from memwal_sql.errors import InvalidCallError
from memwal_sql.sql.errors import memwal_errors
from memwal_sql.sql.provider import SqlTable, TableProvider

_NAME = "scanned"


def filtered_scan(
    table: SqlTable,
    columns: Sequence[str],
    condition: str,
    limit: int | None,
    consistency: str,
) -> pa.RecordBatchReader:
    """The live rows for which `condition` is true, streamed.

    Raises InvalidCallError when the condition does not parse or names an unknown column.
    """
    context = datafusion.SessionContext()
    context.register_table(_NAME, MountedTable(TableProvider(_NAME, table, consistency)))
    frame = context.table(_NAME)
    try:
        frame = frame.filter(frame.parse_sql_expr(condition))
    except Exception as error:  # DataFusion raises nothing more specific
        raise InvalidCallError(f"filter={condition!r} can't be used: {error}") from error
    if limit is not None:
        frame = frame.limit(limit)
    schema = pa.schema([table.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, _batches(context, frame, schema))


def _batches(
    context: datafusion.SessionContext, frame: datafusion.DataFrame, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    # An empty projection still has to come with its number of rows.
    names = [datafusion.col(f'"{name}"') for name in schema.names] or [datafusion.lit(1)]
    with memwal_errors():
        for part in frame.select(*names).execute_stream():
            batch = part.to_pyarrow()
            yield batch.select([]) if not schema.names else batch.cast(schema)
    del context  # the mounted table refers to its session, which must live as long as the stream
