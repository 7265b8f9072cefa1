"""The work of one size: writing a table, and reading it in another process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import datafusion
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import WrongResultError

REGIONS = 16
MEMORY = "4GiB"
_BATCH = 250_000
_UPDATED = 1_000_000
_GETS = 60
_UPSERTS = 20
_SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("val", pa.float64()), ("text", pa.string())]
)
Figures = dict[str, float]


def _batches(keys: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _BATCH):
        ids = keys[start : start + _BATCH]
        values = (ids * 2_654_435_761 % 1_000_003) / 1_000_003
        texts = np.char.zfill(ids.astype("U20"), 20)
        yield pa.record_batch([ids, values, pa.array(texts, pa.string())], schema=_SCHEMA)


def _upsert(writer: mw.TableWriter, keys: np.ndarray[Any, np.dtype[np.int64]]) -> None:
    for batch in _batches(keys):
        writer.upsert(batch)
    writer.flush()


def write(uri: str, count: int) -> Figures:
    """Load the table, merge it, and merge updates of a part of it."""
    mw.configure(memory=MEMORY)
    table = mw.create_table(uri, _SCHEMA, "id", regions=[mw.bucket("id", REGIONS)])
    figures: Figures = {}
    with table.writer(durable=False) as writer:
        with timed(figures, "load, s"):
            _upsert(writer, np.arange(count))
        with timed(figures, "merge of all, s"):
            table.merge()
        with timed(figures, "build_indexes, s"):
            table.build_indexes()
        most = min(_UPDATED, count)
        updated = np.random.default_rng(1).choice(count, most, replace=False)
        with timed(figures, "upsert of 1,000,000 updates, s"):
            _upsert(writer, updated)
        with timed(figures, "merge of 1,000,000 updates, s"):
            table.merge()
        with timed(figures, "build_indexes after 1,000,000 updates, s"):
            table.build_indexes()
    with table.writer() as writer:
        few = list(_batches(np.arange(1_000)))
        writer.upsert(few[0])
        with timed(figures, "durable upsert of 1,000, ms", 1000 / _UPSERTS):
            for _ in range(_UPSERTS):
                writer.upsert(few[0])
    figures["resident size while writing, GB"] = psutil.Process().memory_info().rss / 1e9
    return figures


def read(uri: str, count: int) -> Figures:
    """Queries of a new process, first and again."""
    mw.configure(memory=MEMORY)
    figures: Figures = {}
    with timed(figures, "open, ms", 1000):
        table = mw.open_table(uri)
    keys = np.random.default_rng(2).choice(count, 2 * _GETS, replace=False).tolist()
    for name, some in (("first", keys[:_GETS]), ("next", keys[_GETS:])):
        with timed(figures, f"get, the {name} {_GETS}, ms", 1000 / _GETS):
            for key in some:
                if table.get(key).num_rows != 1:
                    raise WrongResultError(f"row {key} is not there")
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    for query in ("count(*), avg(val) FROM t", "count(*) FROM t WHERE val > 0.9"):
        for name in ("first", "again"):
            with timed(figures, f"{query}, {name}, ms", 1000):
                context.sql(f"SELECT {query}").to_arrow_table()
    if table.count_rows() != count:
        raise WrongResultError(f"{table.uri} has lost rows")
    figures["resident size while reading, GB"] = psutil.Process().memory_info().rss / 1e9
    return figures


@contextmanager
def timed(figures: Figures, name: str, unit: float = 1.0) -> Iterator[None]:
    """Note how long the context takes: seconds, times `unit`."""
    start = perf_counter()
    yield
    figures[name] = (perf_counter() - start) * unit
