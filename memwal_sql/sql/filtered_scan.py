"""`table.scan` with a condition: DataFusion parses it, so it means there what it means in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import datafusion
import pyarrow as pa

from memwal_native import MountedTable, calls_functions
from memwal_sql.errors import InvalidCallError
from memwal_sql.sql.filter_text import condition_errors, conjuncts, filtered
from memwal_sql.sql.provider import SqlTable, TableProvider, answers
from planner.predicates.condition import Condition, condition_of

_NAME = "scanned"


def pushed_filters(condition: str, schema: pa.Schema) -> tuple[Condition, ...] | None:
    """The conjuncts of a condition, where every source applies all of them as DataFusion would.

    Raises InvalidCallError when it does not parse or names an unknown column.
    """
    if not isinstance(condition, str):
        raise InvalidCallError(f"filter={condition!r} must be a SQL condition, as text")
    # Of columns and literals alone, it means the same each time; `now()` would not.
    read = conjuncts if _calls_functions(condition) else _known_conjuncts
    predicates = read(condition, schema, answers)
    if predicates is None:
        return None
    return tuple(condition_of(predicate, schema) for predicate in predicates)


def datafusion_scan(
    table: SqlTable,
    columns: Sequence[str],
    condition: str,
    limit: int | None,
    consistency: str,
) -> pa.RecordBatchReader:
    """The live rows for which `condition` is true, streamed, as DataFusion finds them. Where all
    filters are pushed, its physical plan would cost some milliseconds for nothing."""
    context = datafusion.SessionContext()
    context.register_table(_NAME, MountedTable(TableProvider(None, table, consistency)))
    frame = filtered(context.table(_NAME), condition)
    if limit is not None:
        frame = frame.limit(limit)
    schema = pa.schema([table.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, _batches(context, frame, schema, condition))


_known_conjuncts = lru_cache(maxsize=256)(conjuncts)
_calls_functions = lru_cache(maxsize=256)(calls_functions)


def _batches(
    context: datafusion.SessionContext,
    frame: datafusion.DataFrame,
    schema: pa.Schema,
    condition: str,
) -> Iterator[pa.RecordBatch]:
    # An empty projection still has to come with its number of rows.
    quoted = (name.replace('"', '""') for name in schema.names)
    names = [datafusion.col(f'"{name}"') for name in quoted] or [datafusion.lit(1)]
    with condition_errors(condition):
        for part in frame.select(*names).execute_stream():
            batch = part.to_pyarrow()
            yield batch.select([]) if not schema.names else batch.cast(schema)
    del context  # the mounted table refers to its session, which must live as long as the stream
