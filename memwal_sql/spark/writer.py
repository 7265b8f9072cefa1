"""Writing: tasks stage, the driver publishes (protocol rule 24)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from memwal_sql.bulk.publish import Publisher
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StagedTask, StageLimits
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.life_log import life_log
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.target import prepare, row_form
from memwal_sql.state.batch_marks import BatchMark, check_id
from memwal_sql.storage.objects.open import open_store
from memwal_sql.table import Table
from memwal_sql.write.ingest.missing import KEEP

_KEPT_PUBLISHERS = 4

_log = life_log(__name__)

_COMMITS = "commits"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass
class Staged(WriterCommitMessage):
    """The message of a task to the driver."""

    task: StagedTask


class BatchWriter(DataSourceArrowWriter):
    """One batch write: upserts, or replaces all rows."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite
        self._job = f"batch-{uuid4().hex}"
        self._mark = _mark(options)
        if overwrite:
            _check_overwrite(options)
        table, leave = prepare(options, schema)
        if self._mark is not None:
            leave = leave or table.last_batch(self._mark.query_id) >= self._mark.batch_id
        self._leave = leave

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task's rows."""
        if self._leave:
            return Staged(StagedTask(()))
        form = row_form(self._options)
        return stage(self._options, self._job, form, iterator, replaces=self._overwrite)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish, on the driver."""
        if self._leave:
            return
        table = table_of(self._options)
        if self._overwrite:
            table.replace_staged(tasks_of(messages))
        else:
            table.publisher().publish(tasks_of(messages), self._mark)
        discard(self._options, self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing, on the driver."""
        del messages
        discard(self._options, self._job)


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write, exactly once. Spark makes one for every batch and another to commit it."""

    def __init__(self, options: Options, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise InvalidCallError(
                'outputMode("complete") would replace the table at every batch: use "append" or '
                '"update", whose rows are upserts'
            )
        self._options = options
        self._query = query_of(options)
        table, _ = prepare(options, schema)
        check_checkpoint(options, table, self._query)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one task's rows; which batch they are of only the commit knows."""
        return stage(self._options, self._query, row_form(self._options), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish a batch, on the driver."""
        publisher = _publisher(self._options, self._query)
        publisher.publish(tasks_of(messages), BatchMark(self._query, batchId))
        if any(piece.data is None for task in tasks_of(messages) for piece in task.pieces):
            discard(self._options, self._query)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave nothing, on the driver."""
        del messages, batchId
        discard(self._options, self._query)


def discard(options: Options, job: str) -> None:
    """Remove the staged files of a job. A failure here is not raised: published rows stay, and
    Spark reports the reason of an abort."""
    try:
        table_of(options).discard_staged(job)
    except MemWalError as error:
        kind = type(error).__name__
        _log.warning("%s: what %s staged is left there: %s", options.uri, job, kind)


def stage(
    options: Options,
    job: str,
    form: RowForm,
    batches: Iterator[pa.RecordBatch],
    *,
    replaces: bool = False,
) -> Staged:
    """Stage the rows of a task."""
    stager = table_of(options).stager(job, form, _limits(), replaces=replaces)
    return Staged(stager.stage(batches))


def _limits() -> StageLimits:
    task = TaskContext.get()
    return StageLimits() if task is None else StageLimits.of_task(task.partitionId())


def _check_overwrite(options: Options) -> None:
    """Raise InvalidCallError for an option that looks at rows that are replaced anyway."""
    given = [name for name in ("queryId", "batchId", "when") if name in options.values]
    if row_form(options).missing == KEEP:
        given.append('missing="keep"')
    if given:
        raise InvalidCallError(f'{given} belong to mode("append"), as an overwrite keeps no rows')


def tasks_of(messages: Sequence[WriterCommitMessage | None]) -> list[StagedTask]:
    """What the tasks have staged."""
    return [message.task for message in messages if isinstance(message, Staged)]


def _mark(options: Options) -> BatchMark | None:
    query, batch = options.values.get("queryId"), options.number("batchId", least=0)
    if (query is None) != (batch is None):
        raise InvalidCallError(
            "queryId and batchId belong together: a batch write with both is done once"
        )
    return None if query is None or batch is None else BatchMark(query, batch)


_publishers: dict[tuple[Options, str], tuple[Table, Publisher]] = {}


def _publisher(options: Options, query: str) -> Publisher:
    """The publisher of a query: Spark commits its batches in one worker process, as a rule, and
    the publisher's claims are kept between them."""
    table = table_of(options)
    kept = _publishers.get((options, query))
    if kept is None or kept[0] is not table:
        if len(_publishers) >= _KEPT_PUBLISHERS:
            _publishers.clear()
        kept = _publishers[(options, query)] = (table, table.publisher())
    return kept[1]


def query_of(options: Options) -> str:
    """The id under which the table remembers the query's batches.

    It is option `queryId`, else the id that Spark keeps in the checkpoint folder: a new checkpoint
    is a new query, whose batches begin again at 0. Raises InvalidCallError when neither is there.
    """
    query_id = options.values.get("queryId")
    if query_id is not None:
        check_id("queryId", query_id)
        return query_id
    checkpoint = options.values.get("checkpointLocation")
    if checkpoint is None:
        raise InvalidCallError(
            'a streaming write needs option("checkpointLocation", folder) or option("queryId", id)'
            ": by it the table knows which batches it has"
        )
    try:
        metadata = json.loads(open_store(checkpoint, options.storage_options).get("metadata"))
        query = str(metadata["id"])
        check_id("id", query)
        return query
    except (MemWalError, ValueError, KeyError, TypeError) as error:
        raise InvalidCallError(
            f"checkpointLocation={checkpoint!r} holds no query id that can be read here ({error}): "
            'name the query with option("queryId", id), and never give another one the same id'
        ) from error


def check_checkpoint(options: Options, table: Table, query: str) -> None:
    """Raise InvalidCallError for a checkpoint whose batches went into another table."""
    checkpoint = options.values.get("checkpointLocation")
    if checkpoint is None:
        return
    store = open_store(checkpoint, options.storage_options)
    names = (meta.path.rpartition("/")[2] for meta in store.list(_COMMITS))
    committed = max((int(name) for name in names if name.isdecimal()), default=-1)
    published = table.last_batch(query)
    if committed > published:
        raise InvalidCallError(
            f"checkpointLocation={checkpoint!r} says that batch {committed} of query {query} is "
            f"committed, but {table.uri} knows no batch of it above {published}: the checkpoint is "
            "that of a query into another table; name a folder of its own"
        )
