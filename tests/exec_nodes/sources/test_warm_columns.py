"""Columns are read whole once, whoever notices first that it is time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.source import ROW_ADDRESS
from exec_nodes.sources.warm_columns import WarmColumns
from tests.model.racing import race

ROWS = pa.table({"a": pa.array(range(8)), ROW_ADDRESS: pa.array(range(8), pa.uint64())})


def test_threads_that_fetch_at_once_read_a_column_once_and_never_fail() -> None:
    for _ in range(20):
        reads: list[Sequence[str]] = []

        def read(names: Sequence[str], reads: list[Sequence[str]] = reads) -> pa.Table:
            reads.append(names)
            time.sleep(0.002)  # the others come meanwhile
            return ROWS

        warm = WarmColumns(object(), ByteCache())

        race(*[partial(warm.fetched, ROWS.select(["a"]).slice(0, 1), 8, read)] * 8)
        assert 1 <= len(reads) <= 8
        taken = warm.take(ROWS[ROW_ADDRESS].to_numpy()[2:4], ROWS.select(["a"]).schema)
        assert taken is not None and taken["a"].to_pylist() == [2, 3]
