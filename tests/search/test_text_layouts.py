"""The same rows in 1, 2, 4 or 8 sources give identical results: rows, scores and order."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import lance
import pyarrow as pa

import memwal_sql as mw
from tests.exec_nodes.text.trees import random_query, random_text
from tests.search.text_history import COLUMNS, SCHEMA, globally

ROWS = 120
ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}


def rows_of(rng: Random) -> pa.Table:
    columns = [pa.array([random_text(rng) for _ in range(ROWS)], pa.string()) for _ in COLUMNS]
    return pa.table([pa.array(range(ROWS), pa.int64()), *columns], SCHEMA)


def spread(uri: str, rows: pa.Table, parts: int) -> mw.Table:
    """The first part is the base table, the last a MemTable, and all between were flushed. Every
    part holds rows too that the next one replaces."""
    bounds = [ROWS * part // parts for part in range(parts + 1)]
    own = [rows.slice(start, end - start) for start, end in pairwise(bounds)]
    stale = [rows.set_column(2, "body", rows["title"]).slice(end, 10) for end in bounds[1:]]
    first, *others = [pa.concat_tables(both) for both in zip(own, stale, strict=True)]
    lance.write_dataset(first, uri, schema=SCHEMA)
    table = mw.enable(uri, primary_key="id")
    for column in COLUMNS:
        table.create_index(column, "FTS", **ANALYZER)
    if others:
        with table.writer() as writer:
            for place, part in enumerate(others):
                if place:
                    writer.flush()
                writer.upsert(part)
    return table


def test_the_same_rows_in_1_2_4_or_8_sources_give_identical_results(tmp_path: Path) -> None:
    rng = Random("layouts")
    rows = rows_of(rng)
    snapshots = []
    for parts in (1, 2, 4, 8):
        snapshot = spread(str(tmp_path / f"in_{parts}"), rows, parts).snapshot()
        assert 1 + sum(len(region.sources) for region in snapshot.regions) == parts
        snapshots.append(snapshot)
    for _ in range(80):
        query, _ = random_query(rng)
        k = rng.choice((1, 10, ROWS))
        first, *others = [globally(snapshot, query, ROWS) for snapshot in snapshots]
        assert all(other == first for other in others), query
        wanted = sorted(first.values(), reverse=True)[:k]
        for snapshot in snapshots:
            assert list(globally(snapshot, query, k).values()) == wanted
