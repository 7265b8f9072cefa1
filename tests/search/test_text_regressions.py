"""Full-text searches that returned stale rows, lost rows, or scored by what was not searched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.sources.lance_source import LanceSource
from tests.model.ranking import LanceRanking, Ranking, check_ranking
from tests.model.writing import flush_rows, session_of

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("body", pa.string()), ("n", pa.int64())]
)
ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}
Layer = Callable[[Any], None]


def _in_memory(writer: Any) -> None:
    """The newest rows stay in the MemTable."""


def _flushed(writer: Any) -> None:
    writer.flush()


LAYERS = [_in_memory, _flushed]


def texts(*rows: tuple[int, str | None]) -> pa.Table:
    """Rows of a key and a text, `n` = key."""
    return pa.Table.from_pylist([{"id": i, "body": text, "n": i} for i, text in rows], SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    """Keys 0 to 9: the lower the key, the better it matches "log"; with an index."""
    uri = str(tmp_path / "texts")
    rows = [(i, "log " * (10 - i) + "table " * (i + 1)) for i in range(10)]
    lance.write_dataset(texts(*rows), uri)
    found = mw.enable(uri, primary_key="id")
    found.create_index("body", "FTS", **ANALYZER)
    return found


def search(table: mw.Table, query: Any = "log", k: int = 10, where: str | None = None) -> Ranking:
    """Through the method and through SQL, which must agree."""
    rows = table.full_text_search("body", query, k, filter=where)
    found = dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, f"keys were returned twice: {rows['id'].to_pylist()}"
    context = session_of("t", table)
    sql = f"SELECT id, _score FROM full_text_search('t', 'body', '{query}', {k})"
    sql += f" WHERE {where}" if where else ""
    rows = context.sql(sql).to_arrow_table()
    assert dict(zip(rows["id"].to_pylist(), rows["_score"].to_pylist(), strict=True)) == found
    return found


@pytest.mark.parametrize("layer", LAYERS)
def test_a_filter_never_lets_a_replaced_text_through(table: mw.Table, layer: Layer) -> None:
    """#6929: the filter ran below the deduplication; the newest version that does not match it, or
    does not match the query, hides the old one that does."""
    with table.writer() as writer:
        writer.upsert(pa.table([[0, 1], ["log", "merge"], [100, 1]], schema=SCHEMA))
        writer.delete(pa.table({"id": [2]}))
        layer(writer)
        assert list(search(table, where="n < 5")) == [3, 4]
        assert list(search(table, where="n = 100")) == [0]
        assert 1 not in search(table)
        assert list(search(table, "merge")) == [1]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_worse_new_version_does_not_bring_the_better_old_one_back(
    table: mw.Table, layer: Layer
) -> None:
    """#6888, #6899: the new row fell out of its own source's k best, and the old one won."""
    with table.writer() as writer:
        writer.upsert(texts((0, "log " + "table " * 40), *((i, "log log") for i in range(20, 25))))
        layer(writer)
        for k in (1, 2, 3, 5, 14):
            assert 0 not in search(table, k=k)
            assert len(search(table, k=k)) == k
        assert list(search(table, k=100))[-1] == 0


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("one_batch", [True, False])
def test_duplicate_keys_inside_one_memtable_are_found_once(
    table: mw.Table, layer: Layer, one_batch: bool
) -> None:
    """#6880, #6881."""
    versions = [(30, "log"), (30, "log log log"), (30, "merge log")]
    with table.writer() as writer:
        if one_batch:
            writer.upsert(texts(*versions))
        else:
            for version in versions:
                writer.upsert(texts(version))
        layer(writer)
        assert 30 in search(table, k=20)
        assert list(search(table, "merge")) == [30]
        merged = LanceRanking(
            pa.concat_tables([base_rows(), texts(versions[-1])]), {"body": ANALYZER}
        )
        check_ranking(search(table, k=20), full(merged, "log"))


def base_rows() -> pa.Table:
    return texts(*[(i, "log " * (10 - i) + "table " * (i + 1)) for i in range(10)])


def full(merged: LanceRanking, text: str) -> Ranking:
    return merged.search(lance.query.MatchQuery(text, "body"))


def test_a_bloom_filter_s_false_positive_loses_no_text(table: mw.Table) -> None:
    """#6856: a row whose key the filter of a newer generation seems to have was dropped."""
    flush_rows(table, texts((50, "merge")))

    def all_maybe(_: LanceSource, keys: Any) -> Any:
        return np.ones(len(keys), np.bool_)

    with patch.object(LanceSource, "might_contain", all_maybe):
        assert list(search(table)) == list(range(10))


@pytest.mark.parametrize("stale", [5, 9, 10])
def test_k_rows_come_back_however_many_of_the_best_are_stale(table: mw.Table, stale: int) -> None:
    """#7916, for searches: candidates were cut to k before the stale ones were dropped."""
    with table.writer() as writer:
        writer.upsert(texts(*((i, "merge") for i in range(stale))))
        writer.flush()
        assert list(search(table, k=3)) == list(range(stale, 10))[:3]


def test_texts_in_memory_are_found_without_an_index(tmp_path: Path) -> None:
    """#9167: no maintained index, and the MemTable's rows were not found."""
    table = mw.create_table(str(tmp_path / "none"), SCHEMA, primary_key="id")
    with table.writer(indexed=False) as writer:
        writer.upsert(texts((1, "log"), (2, "table")))
        assert list(search(table)) == [1]
        writer.flush()
        writer.upsert(texts((3, "log log")))
        assert list(search(table)) == [3, 1]


def test_scores_do_not_change_with_filters_nor_with_what_an_index_covers(
    table: mw.Table,
) -> None:
    """#9058."""
    more = texts(*((i, f"log table region{i}") for i in range(60, 80)))
    with table.writer() as writer:
        writer.upsert(more)
        states = [search(table, k=100)]
        writer.flush()
        states.append(search(table, k=100))
        table.merge()  # in the base table, and in no index
        states.append(search(table, k=100))
        table.build_indexes()
        states.append(search(table, k=100))
    assert all(state == states[0] for state in states)
    for where in ("n < 5", "n > 60", "id IN (3, 70)"):
        found = search(table, k=100, where=where)
        assert found.items() <= states[0].items()
        assert found
    merged = LanceRanking(pa.concat_tables([base_rows(), more]), {"body": ANALYZER})
    check_ranking(states[0], full(merged, "log"))
