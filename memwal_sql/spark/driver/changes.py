"""DELETE, UPDATE and MERGE of the jar: what tasks run, and the commit. The other side is
`ChangeWrite.java` and `Publication.java`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from memwal_sql.bulk.publish import routing_spec
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.unchanged import RowsRead, columns_changed
from memwal_sql.errors import ReopenError
from memwal_sql.spark.driver.answer import Answer
from memwal_sql.spark.driver.catalog import place_of, table_options
from memwal_sql.spark.driver.description import incarnation_of
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import arrow_schema
from memwal_sql.spark.writer import Staged, discard, stage, tasks_of
from memwal_sql.table import Table

_MESSAGE = StructType([StructField("message", BinaryType())])
_FORM = RowForm(changes=True)


def plan_changes(arguments: Mapping[str, Any], parts: Sequence[bytes]) -> Answer:
    """The job of a statement, and what its tasks run. `rows` are the columns of new rows as JSON of
    Spark, none for a DELETE. Raises ReopenError where the table has other columns by now, and
    InvalidCallError and UnsupportedError where rows of these can't be written."""
    del parts
    options, table = _changed(arguments)
    routing_spec(table.info)
    rows = arrow_schema(StructType.fromJson(json.loads(arguments["rows"])))
    if arguments["command"] != "DELETE":
        if rows.names != table.schema.names:
            how = f"{rows.names} were read, {table.schema.names} are there"
            raise columns_changed(table.uri, how)
        _FORM.check(rows, table.info)
    job = f"change-{uuid4().hex}"
    return Answer({"job": job}, [pickle.dumps((StageChanges(options, job), _MESSAGE))])


@dataclass(frozen=True)
class StageChanges:
    """What Spark runs in a task: from its changes to one row with the message to the driver."""

    options: Options
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage the changes. Raises InvalidCallError naming a value that does not fit, and for a
        row that is changed twice."""
        staged = stage(self.options, self.job, _FORM, batches)
        yield pa.record_batch([[pickle.dumps(staged)]], names=_MESSAGE.names)


def commit_changes(arguments: Mapping[str, Any], parts: Sequence[bytes]) -> Answer:
    """Publish what the tasks staged. The first part is the state that the statement has read, or
    empty; the others are the tasks' messages. Raises as `Publisher.publish`."""
    options, table = _changed(arguments)
    state, *messages = parts
    staged: list[Staged] = [pickle.loads(message) for message in messages]  # noqa: S301 (of ours)
    tasks = tasks_of(list(staged))
    pinned = pickle.loads(state) if state else None  # noqa: S301 (it is what `plan_scan` returned)
    read = RowsRead(table.context, pinned, any(task.moves for task in tasks))
    table.publisher().publish(tasks, read=read, operation=arguments["command"])
    if "job" in arguments:
        discard(options, arguments["job"])
    return Answer({})


def abort_changes(arguments: Mapping[str, Any], parts: Sequence[bytes]) -> Answer:
    """Leave nothing that tasks have staged."""
    del parts
    discard(_options(arguments), arguments["job"])
    return Answer({})


def _options(arguments: Mapping[str, Any]) -> Options:
    return table_options(place_of(arguments), arguments["name"], {})


def _changed(arguments: Mapping[str, Any]) -> tuple[Options, Table]:
    """The table of a statement. Raises ReopenError if another one has taken its place."""
    options = _options(arguments)
    table = table_of(options)
    if incarnation_of(table) != arguments["incarnation"]:
        raise ReopenError(
            f"the table of {table.uri} was dropped or made anew since the statement began: nothing "
            "was written, run it again if it is about the one that is here now"
        )
    return options, table


CHANGES = {
    "plan_changes": plan_changes,
    "commit_changes": commit_changes,
    "abort_changes": abort_changes,
}
