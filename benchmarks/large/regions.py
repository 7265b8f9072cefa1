"""The work of a table with many regions, which have three rows each."""

from __future__ import annotations

from datetime import timedelta

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.large.work import Figures, timed
from benchmarks.support.data import WrongResultError

_ROWS = 3
_SCHEMA = pa.schema(
    [
        pa.field("shard", pa.int64(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("val", pa.float64()),
    ]
)


def _rows(regions: int) -> pa.Table:
    shards = np.repeat(np.arange(regions), _ROWS)
    return pa.table([shards, np.arange(len(shards)), shards / 7], schema=_SCHEMA)


def write(uri: str, regions: int) -> Figures:
    """Make the regions by one call, flush them, and record them."""
    table = mw.create_table(uri, _SCHEMA, ["shard", "id"], regions=[mw.identity("shard")])
    figures: Figures = {}
    with table.writer() as writer:
        with timed(figures, "durable upsert that makes the regions, s"):
            writer.upsert(_rows(regions))
        with timed(figures, "durable upsert of all again, s"):
            writer.upsert(_rows(regions))
        with timed(figures, "flush, s"):
            writer.flush()
    with timed(figures, "snapshot_regions, s"):
        table.snapshot_regions()
    return figures


def read(uri: str, regions: int) -> Figures:
    """Queries of a new process, then a merge and a collection."""
    figures: Figures = {}
    with timed(figures, "open, ms", 1000):
        table = mw.open_table(uri)
    for name, shard in (("the first get", 1), ("get in another region", 2), ("the same", 2)):
        with timed(figures, f"{name}, ms", 1000):
            found = table.get([(shard, _ROWS * shard)])
        if found.num_rows != 1:
            raise WrongResultError(f"a row of region {shard} is not there")
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    for name, shard in (("the first SQL", 3), ("SQL in another region", 4)):
        with timed(figures, f"{name}, ms", 1000):
            context.sql(f"SELECT * FROM t WHERE shard = {shard}").to_arrow_table()
    for name in ("first", "again"):
        with timed(figures, f"count(*), {name}, s"):
            context.sql("SELECT count(*) FROM t").to_arrow_table()
    with timed(figures, "merge, s"):
        table.merge()
    with timed(figures, "collect_garbage, s"):
        table.collect_garbage(older_than=timedelta(0))
    if table.count_rows() != _ROWS * regions:
        raise WrongResultError(f"{table.uri} has lost rows")
    return figures
