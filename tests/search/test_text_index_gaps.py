"""Full-text search over two columns whose indexes lack what was merged last, against one index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import memwal_sql as mw
from exec_nodes.base.columns import BASE_GENERATION
from exec_nodes.fts_exec import FTSExec
from exec_nodes.text.query.tree import MultiMatch
from tests.exec_nodes.tables import nodes
from tests.exec_nodes.text.trees import random_query, random_text
from tests.model.ranking import LanceRanking, check_ranking
from tests.search.text_history import COLUMNS, SCHEMA, plan

KEYS = 200
ANALYZERS = {
    "title": {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True},
    "body": {"base_tokenizer": "whitespace", "stem": False, "remove_stop_words": False},
}


class Articles:
    """A table in two regions that has both indexes, and its rows: title and body by id."""

    def __init__(self, uri: str) -> None:
        self.rng = Random("articles")
        self.rows: dict[int, tuple[str | None, str | None]] = {}
        self.table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
        self.write(range(120))
        self.table.merge()
        for column, analyzer in ANALYZERS.items():
            self.table.create_index(column, "FTS", name=column, **analyzer)

    def write(self, keys: range, *, flush: bool = True) -> None:
        """New texts for these keys, and every seventh of them is deleted again."""
        texts = [(random_text(self.rng), random_text(self.rng)) for _ in keys]
        self.rows.update(zip(keys, texts, strict=True))
        columns = [pa.array(column, pa.string()) for column in zip(*texts, strict=True)]
        with self.table.writer() as writer:
            writer.upsert(pa.table([pa.array(keys), *columns], SCHEMA))
            writer.delete(pa.table({"id": keys[::7]}))
            if flush:
                writer.flush()
        for key in keys[::7]:
            del self.rows[key]

    def check(self, analyzers: Mapping[str, Mapping[str, Any]] = ANALYZERS) -> None:
        """Searches of one and of both columns find what one index a column over all rows finds."""
        titles, bodies = zip(*self.rows.values(), strict=True)
        columns = [pa.array(self.rows), pa.array(titles, pa.string()), pa.array(bodies)]
        merged = LanceRanking(pa.table(columns, SCHEMA), analyzers)
        for _ in range(20):
            ours, theirs = random_query(self.rng, COLUMNS)
            k = self.rng.choice((1, 5, KEYS))
            rows = self.table.full_text_search("body", ours, k, columns=["id"])
            ids, scores = rows["id"].to_pylist(), rows["_score"].to_pylist()
            found = dict(zip(ids, scores, strict=True))
            check_ranking(found, merged.search(theirs), k, tolerance=3e-5)

    def read_of_both_columns(self) -> tuple[set[int], bool]:
        """The generations that a search of both columns reads, and whether it reads the whole base
        table."""
        snapshot = self.table.snapshot()
        root = plan(snapshot, MultiMatch("log", COLUMNS), 5)
        scans = [one for one in nodes(root) if isinstance(one, FTSExec)]
        read = {scan.source.generation for scan in scans}
        (base,) = (scan.source for scan in scans if scan.source.generation == BASE_GENERATION)
        return read - {BASE_GENERATION}, base.rows == snapshot.base.rows


def test_a_gap_is_read_through_its_generations_where_both_indexes_have_it(tmp_path: Path) -> None:
    articles = Articles(str(tmp_path / "t"))
    articles.check()
    for keys in (range(80, 160), range(40, 180)):
        articles.write(keys)
        articles.table.merge()
    assert articles.read_of_both_columns() == ({2, 3}, False)
    articles.check()
    articles.write(range(60, 100))
    articles.write(range(90, 200), flush=False)  # newer rows mask the gap and the base table
    generations, whole = articles.read_of_both_columns()
    assert {2, 3, 4} <= generations and not whole
    articles.check()
    articles.table.merge()
    articles.table.build_indexes(indexes=["title"])  # the body's lacks other rows
    assert articles.read_of_both_columns()[1]
    articles.check()
    articles.write(range(50))
    articles.table.merge()
    assert articles.read_of_both_columns()[1]
    articles.check()
    articles.table.build_indexes()
    assert articles.read_of_both_columns()[1]
    articles.check()
    articles.write(range(20, 90))
    articles.table.merge()
    articles.table.drop_index("title")
    assert articles.read_of_both_columns()[1]
    articles.check({**ANALYZERS, "title": {}})  # Lance's default analyzer
