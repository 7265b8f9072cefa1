"""How soon another process finds what was written: from the acknowledgement of a durable upsert to
an answer that has its row, by strong SQL, by vector and by text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.s3.server import BUCKET

_URI = f"s3://{BUCKET}/fresh"
_ROWS, _DIMENSIONS, _REGIONS = 2_000, 16, 4
_TIMES = 20
_SECONDS = 30.0
# The reader has asked at least once in vain when a row is written.
_HEAD_START_SECONDS = 0.3

Find = Callable[[int], Any]


def freshness(options: Mapping[str, str]) -> Iterator[tuple[str, list[float]]]:
    """Seconds of each of some upserts, for each kind of query. The base table is indexed; the
    reader asks again and again, so that its last answer without the row counts too."""
    rows, storage = _table_of(range(_ROWS)), dict(options)
    table = mw.create_table(
        _URI, rows.schema, "id", [mw.bucket("id", _REGIONS)], storage_options=storage
    )
    with (
        table.writer() as writer,
        ProcessPoolExecutor(1, get_context("spawn"), open_table, (storage,)) as process,
    ):
        writer.upsert(rows)
        writer.flush()
        table.merge()
        table.create_index("v", "IVF_PQ", num_partitions=4, num_sub_vectors=4)
        table.create_index("text", "INVERTED")
        keys = count(_ROWS)
        for kind in ("SQL", "vector", "text"):
            times = []
            process.submit(first_answer, kind, 0).result()
            for key in islice(keys, _TIMES):
                answered = process.submit(first_answer, kind, key)
                time.sleep(_HEAD_START_SECONDS)
                writer.upsert(_table_of([key]))
                acknowledged = time.monotonic()  # one clock for all processes of the machine
                times.append(answered.result() - acknowledged)
            yield kind, times


_finds: dict[str, Find] = {}


def open_table(storage: dict[str, str]) -> None:
    """Open the table in this process."""
    table = mw.open_table(_URI, storage_options=storage)
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    _finds["SQL"] = lambda key: context.sql(f"SELECT id FROM t WHERE id = {key}").to_arrow_table()
    _finds["vector"] = lambda key: table.vector_search("v", _vector(key), 1, columns=["id"])
    _finds["text"] = lambda key: table.full_text_search("text", f"word{key}", 1, columns=["id"])


def first_answer(kind: str, key: int) -> float:
    """When the first answer with the row is there."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        if _finds[kind](key)["id"].to_pylist() == [key]:
            return time.monotonic()
    raise TimeoutError(f"row {key} was not found by {kind}")


def _table_of(keys: Any) -> pa.Table:
    ids = pa.array(keys, pa.int64())
    vectors = np.concatenate([_vector(key) for key in ids.to_pylist()])
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors), _DIMENSIONS)
    texts = pa.array([f"text of word{key}" for key in ids.to_pylist()])
    schema = pa.schema(
        [pa.field("id", pa.int64(), False), pa.field("v", column.type), ("text", pa.string())]
    )
    return pa.Table.from_arrays([ids, column, texts], schema=schema)


def _vector(key: int) -> Any:
    return np.random.default_rng(key).normal(size=_DIMENSIONS).astype(np.float32)
