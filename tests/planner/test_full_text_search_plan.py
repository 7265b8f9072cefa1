"""Full-text search over several sources ranks as one index over the merged table would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.node import draw
from exec_nodes.sources.source import Source
from exec_nodes.text.query.tree import Boolean, Match, Operator, Phrase
from planner.model import Snapshot, TableInfo
from planner.search.full_text import TextQuery, plan_full_text_search
from tests.each import each
from tests.exec_nodes.tables import collect, nodes, where
from tests.exec_nodes.text.sources import (
    DELETED,
    QUERIES,
    SCHEMA,
    Oracle,
    Texts,
    base_table,
    body_index,
    generation,
    memtable,
    merged,
    search,
    snapshot,
    some_texts,
)
from tests.model.ranking import check_ranking

PARAMETERS = {"stem": False}


def history(random: Random) -> tuple[list[Texts], dict[int, str | None]]:
    """A base table, two generations and a MemTable's writes, oldest first; and what is live."""
    parts = [some_texts(random, range(400))]
    for _ in range(3):
        parts.append(some_texts(random, random.sample(range(500), 90), deletes=0.15))
    return parts, merged(*parts)


def table(folder: Path, parts: Sequence[Texts], *, indexed: Sequence[bool]) -> Snapshot:
    """Those of the base and the generations that are `indexed` have index files."""
    base, *generations, unflushed = parts
    kinds = [PARAMETERS if flag else None for flag in indexed]
    source = base_table(folder / "t", base, kinds[0], max_rows_per_file=150)
    newer: list[Source] = [
        generation(folder / f"g{number}", texts, number, kinds[number])
        for number, texts in enumerate(generations, 1)
    ]
    newer.append(memtable(list(unflushed.items()), len(newer) + 1))
    return snapshot(source, newer[::-1], [body_index(PARAMETERS)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "indexed",
    [(True, True, True), (True, False, True), (False, True, False), (False,) * 3],
    ids=str,
)
def test_the_ranking_is_that_of_one_index_over_the_live_rows(
    indexed: tuple[bool, ...], seed: int, tmp_path: Path
) -> None:
    parts, live = history(Random(seed))
    found, oracle = table(tmp_path, parts, indexed=indexed), Oracle(live, PARAMETERS)
    for query in QUERIES:
        expected = oracle.search(query)
        for k in (0, 1, 10, 1000):
            check_ranking(search(found, query, k), expected, k)


def test_scores_change_neither_with_a_filter_nor_with_index_coverage(tmp_path: Path) -> None:
    """Regression lance-format/lance#9058: both changed them."""
    parts, _ = history(Random(3))
    filters = [where("n", ">", 3), where("id", "<", 150)]
    kept = {number for number in merged(*parts) if number % 5 > 3 and number < 150}
    unpushable = [replace(one, lance=None) for one in filters]
    results = []
    for name, indexed in (("a", (True,) * 3), ("b", (False, True, False))):
        (tmp_path / name).mkdir()
        found = table(tmp_path / name, parts, indexed=indexed)
        for query in QUERIES:
            everything = search(found, query, 1000)
            wanted = {number: s for number, s in everything.items() if number in kept}
            assert search(found, query, 1000, filters) == wanted
            assert search(found, query, 1000, unpushable) == wanted
            check_ranking(search(found, query, 5, filters), wanted, 5, tolerance=0)
        results.append([search(found, query, 1000) for query in QUERIES])
    assert results[0] == results[1]


def test_queries_of_other_forms_run_over_the_same_corpus(tmp_path: Path) -> None:
    base = {1: "word1 word2 word3", 2: "word2 word1", 3: "word3"}
    newer: list[tuple[int, str | None]] = [(4, "word1 word2"), (2, DELETED)]
    found = snapshot(base_table(tmp_path / "t", base, {}), [memtable(newer, 1)], [body_index()])
    both = search(found, Match("word1 word3", "body", Operator.AND))
    assert set(both) == {1}
    one = search(found, "word1 word3")
    assert one[1] == pytest.approx(both[1], rel=1e-6)
    assert set(search(found, Phrase("word1 word2", "body"))) == {1, 4}
    without = Boolean(must=(Match("word1", "body"),), must_not=(Match("word3", "body"),))
    assert search(found, without) == {4: search(found, "word1")[4]}
    two = Boolean(should=(Match("word1", "body"), Match("word1", "title")))
    assert set(search(found, two)) == {1, 4} | set(search(found, Match("word1", "title")))


def test_the_plan_is_the_one_of_the_specification(tmp_path: Path) -> None:
    parts, _ = history(Random(5))
    found = table(tmp_path, parts, indexed=(True, True, True))
    query = TextQuery(Match("word1", "body"), 10, ("id", "title"), (where("n", ">", 2),))
    plan = plan_full_text_search(query, found)
    query_label = 'column=body, query=match(body, "word1"), k=10'
    sources = [
        ("base_table[gen=-1], version=2", "body_idx"),
        ("region_a[gen=3]", "tokenized"),  # the search does it
        ("region_a[gen=2]", "body_idx"),
        ("region_a[gen=1]", "body_idx"),
    ]
    assert draw(plan).splitlines() == [
        "TakeExec: columns=[id, title]",
        "  GlobalLimitExec: limit=10",
        "    SortExec: order_by=[_score DESC]",
        "      FilterStaleExec: asked=[]",
        '        GlobalBM25Exec: column=body, tokens=["word1"], k1=1.2, b=0.75',
        "          UnionExec",
        *(
            f"            FTSExec: {source}, {query_label}, index={index}, filter=[n > 2]"
            for source, index in sources
        ),
    ]
    assert collect(plan).schema == pa.schema(
        [SCHEMA.field("id"), SCHEMA.field("title"), pa.field("_score", pa.float32(), False)]
    )


def test_the_corpus_is_in_the_metrics(tmp_path: Path) -> None:
    base = base_table(tmp_path / "t", {1: "word1", 2: "word2 word2 word2", 3: None, 4: "the"}, {})
    found = snapshot(base, [memtable([(1, "word5 word6")], 1)], [body_index()])
    plan = plan_full_text_search(TextQuery(Match("word1", "body"), 10, ("id",)), found)
    collect(plan)
    node = next(n for n in nodes(plan) if n.label().startswith("GlobalBM25Exec"))
    assert (node.metrics["documents"], node.metrics["tokens"]) == (2, 5)


@each(
    "query, message",
    [
        (TextQuery(Match("a", "text"), 3, ("id",)), "no column 'text'; the table has id, body"),
        (TextQuery(Match("a", "n"), 3, ("id",)), "no text in 'n'; there are texts in"),
        (TextQuery(Match("a", "body"), 3, ("key",)), "no column 'key'"),
        (TextQuery(Match("a", "body"), -1, ("id",)), "k=-1 .* give 0 or more"),
    ],
)
def test_bad_calls_are_refused_before_anything_is_read(query: TextQuery, message: str) -> None:
    with pytest.raises(InvalidCallError, match=message):
        plan_full_text_search(query, Snapshot(TableInfo(SCHEMA, ("id",)), None, ()))
