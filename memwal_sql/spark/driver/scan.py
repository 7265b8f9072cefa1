"""What the jar asks of a table that it reads: its columns, and the plan of one use.

Each use has columns, conditions and a plan of its own, over one state of the table: the first use
takes it and the jar hands it on to the others. The state goes to tasks with the function that they
run, which Spark sends to each executor once, and not with every share.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.session.filter_text import implied
from memwal_sql.spark.driver.answer import Answer
from memwal_sql.spark.driver.conditions import sql_of
from memwal_sql.spark.driver.size import read_size
from memwal_sql.spark.options import READ, parse_options
from memwal_sql.spark.reader import ReadTask, Share, columns_of, shared_out
from memwal_sql.spark.source import MemWalDataSource
from memwal_sql.spark.tables import pinned_table_of, table_of


def load_columns(arguments: Mapping[str, Any], parts: Sequence[bytes]) -> Answer:
    """The columns that a read with `options` has, as JSON of Spark."""
    del parts
    return Answer({"schema": MemWalDataSource(arguments["options"]).schema().json()})


def plan_scan(arguments: Mapping[str, Any], parts: Sequence[bytes]) -> Answer:
    """The plan of one use: the state, what its tasks run, and the share of each task.

    `schema` is JSON of Spark, `conditions` are trees, `limit` is for each task, `counts` asks for
    the number of rows alone, `tasks` run at once. The state is the only part, once it is taken.
    """
    options = parse_options(arguments["options"], READ, "reading")
    schema = StructType.fromJson(json.loads(arguments["schema"]))
    counts = arguments["counts"]
    names = () if counts else tuple(schema.names)
    table = table_of(options)
    columns, read = table.schema, columns_of(table, names)
    given = options.values.get("filter")
    state = pickle.loads(parts[0]) if parts else None  # noqa: S301 (it is what this returned)
    if state is None:
        state = table.pin(options.consistency, [] if given is None else implied(given, columns))
    pushed = sql_of(arguments["conditions"], columns)
    texts = pushed if given is None else [given, *pushed]
    condition = " AND ".join(f"({text})" for text in texts) or None
    conditions = [] if condition is None else implied(condition, columns)
    pinned = pinned_table_of(options).pruned(state, conditions)
    shares, rows = shared_out(options, table, pinned, conditions, read, arguments["tasks"])
    size = read_size(options, table, pinned, read, shares, rows)
    if counts and not shares:
        shares = [Share()]  # a task that counts none, as the sum of nothing is NULL
    task = ReadTask(options, pinned, schema, columns, condition, arguments["limit"])
    function = (ShareFunction(task, counts), schema)
    shown = {
        "version": pinned.version,
        "fragments": len({number for share in shares for number in share.fragments}),
        "regions": len(pinned.regions),
        "prunedRegions": pinned.regions_pruned,
    }
    return Answer(
        {
            **shown,
            "rows": rows,
            "bytes": size,
            "description": _description(pinned, names, texts, arguments["limit"], counts),
        },
        [
            pickle.dumps(state),
            pickle.dumps(function),
            *(pickle.dumps(share) for share in shares),
        ],
    )


def _description(
    pinned: PinnedSnapshot,
    names: Sequence[str],
    texts: Sequence[str],
    limit: int | None,
    counts: bool,
) -> str:
    parts = [f"version={pinned.version}", "count" if counts else f"columns=[{', '.join(names)}]"]
    parts += [f"filters=[{', '.join(texts)}]"] if texts else []
    parts += [] if limit is None else [f"limit={limit}"]
    regions = len(pinned.regions)
    parts.append(f"regions={regions} of {regions + pinned.regions_pruned}")
    return ", ".join(parts)


@dataclass(frozen=True)
class ShareFunction:
    """What Spark runs in a task: from the pickled share, in a batch of one row, to its rows."""

    task: ReadTask
    counts: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the share, or one row with their number."""
        for batch in batches:
            share: Share = pickle.loads(batch.column(0)[0].as_py())  # noqa: S301 (see plan_scan)
            if self.counts:
                yield pa.record_batch({self.task.schema.names[0]: [self.task.count(share)]})
            else:
                yield from self.task.rows(share)


SCANS = {"load_columns": load_columns, "plan_scan": plan_scan}
