"""Scans with conditions give the same rows from Lance and from columns in memory."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from unittest.mock import patch

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from exec_nodes.resident.admission import Admission
from exec_nodes.sources import lance_source

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("n", pa.float64()), ("s", pa.string())])
ROWS = 3_000
CONDITIONS = [
    "id BETWEEN 700 AND 720",
    "n > 0.9",
    "n IS NULL",
    "s = 'b' OR n < 0.1",
    "NOT (s = 'c')",
    "s LIKE 'a%' AND id < 1500",
    "n > 2",
    "s IN ('a', 'd') AND n IS NOT NULL",
    "id % 7 = 0",
]


def made(uri: str) -> mw.Table:
    """A merged table of several fragments, some of whose rows were replaced or deleted, with rows
    that are not merged on top."""
    chosen = random.Random(4)
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    with table.writer() as writer:
        for ids in (range(ROWS), range(0, ROWS, 3), range(ROWS, ROWS + 500)):
            rows = [
                {
                    "id": i,
                    "n": chosen.choice([None, chosen.random()]),
                    "s": chosen.choice([None, *"abcd"]),
                }
                for i in ids
            ]
            writer.upsert(pa.Table.from_pylist(rows, SCHEMA))
            writer.delete(list(range(ids.start, ids.stop, 11)))
            writer.flush()
            table.merge()
        writer.upsert({"id": [1, 710, 9_000], "n": [0.95, None, 0.05], "s": ["b", "a", None]})
        writer.delete([711, 712])
    return table


@pytest.mark.parametrize("evaluated", [Admission.evaluated, 10])
def test_conditions_mean_the_same_in_memory_and_in_lance(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, evaluated: int
) -> None:
    """With the key's index, which Lance looks into where there are many rows, and without."""
    monkeypatch.setattr(Admission, "evaluated", evaluated)
    table = made(str(fast_folder / "t"))
    ctx, memory = datafusion.SessionContext(), datafusion.SessionContext()
    mw.register(ctx, "t", table)
    memory.register_record_batches("t", [table.to_arrow().to_batches()])
    lance_scan = lance_source.scan_dataset
    for columns, condition in product(("id", "s, id", "count(*)", "*"), CONDITIONS):
        query = f"SELECT {columns} FROM t WHERE {condition}"
        expected = sorted(map(repr, memory.sql(query).to_pylist()))
        for _ in range(4):
            with (
                background_by(lambda call: call()),
                patch.object(lance_source, "scan_dataset", wraps=lance_scan) as by_lance,
            ):
                assert sorted(map(repr, ctx.sql(query).to_pylist())) == expected, query
        uses_index = evaluated == 10 and "id <" in condition
        if "id B" not in condition:  # by keys in memory, if the columns are there too
            assert bool(by_lance.called) == uses_index, query
