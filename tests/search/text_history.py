"""One random history of a table with texts, and what a search of it should find after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from exec_nodes.fts_exec import FTSExec
from exec_nodes.global_bm25_exec import GlobalBM25Exec
from exec_nodes.node import Node
from exec_nodes.postings.bm25 import inverse_document_frequency
from exec_nodes.postings.corpus import LiveCorpus
from exec_nodes.text.query.tree import Match, TextExpression
from exec_nodes.text.scoring.rank import rank
from exec_nodes.text.scoring.resolve import Corpus, Resolved, Words, parts_of, resolve
from memwal_sql.errors import MemWalError
from planner.model import Snapshot
from planner.search.full_text import TextQuery, plan_full_text_search
from tests.exec_nodes.arrow.hidden_values import over_hidden_values
from tests.exec_nodes.tables import nodes
from tests.exec_nodes.text.trees import random_query, random_text
from tests.model.process import Process, ProcessKilledError, as_another_process
from tests.model.ranking import LanceRanking, Ranking, bm25s_ranking, check_ranking, words

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("title", pa.string()), ("body", pa.string())]
)
COLUMNS = ("title", "body")
KEYS = 40

Search = Callable[[Snapshot, TextExpression, int], Ranking]


def globally(snapshot: Snapshot, expression: TextExpression, k: int) -> Ranking:
    """The search under test."""
    return ranked(plan(snapshot, expression, k))


def plan(snapshot: Snapshot, expression: TextExpression, k: int) -> Node:
    return plan_full_text_search(TextQuery(expression, k, ("id",)), snapshot)


def ranked(node: Node) -> Ranking:
    batches = list(node.execute())
    ids = [number for batch in batches for number in batch.column("id").to_pylist()]
    scores = [score for batch in batches for score in batch.column("_score").to_pylist()]
    assert len(set(ids)) == len(ids), f"a row was found twice: {ids}"
    return dict(zip(ids, scores, strict=True))


def locally(snapshot: Snapshot, expression: TextExpression, k: int) -> Ranking:
    """The control: every source scores with statistics of its own, as native Lance does."""
    root = plan(snapshot, expression, k)
    list(root.execute())
    found: list[tuple[int, float]] = []
    for node in nodes(root):
        if not isinstance(node, FTSExec):
            continue
        texts = node.corpus.texts(node.ordinal)
        corpora = {
            column: Corpus(LiveCorpus([text]), [text.text]) for column, text in texts.items()
        }
        addresses, scores = rank(resolve(expression, corpora), texts, None, k)
        ids = node.source.rows_at(addresses, ["id"])["id"].to_pylist()
        found += zip(ids, scores.tolist(), strict=True)
    return dict(sorted(found, key=lambda row: -row[1])[:k])


class TextHistory:
    """A table, its model (a dict from key to texts), and random steps on both."""

    schema = SCHEMA
    columns: tuple[str, str] = COLUMNS

    def __init__(self, seed: str, uri: str, analyzer: Mapping[str, Any], search: Search) -> None:
        self.rng = Random(seed)
        self.rows: dict[int, tuple[str | None, str | None]] = {}
        self.log: list[str] = []
        self._uri, self._analyzer, self._search = uri, dict(analyzer), search
        self._create()

    def run(self, steps: int) -> None:
        """Play so many steps and compare after each."""
        choices = [(8, self._upsert), (3, self._delete), (4, self._flush), (2, self._reopen)]
        choices += [(2, self._merge), (1, self._rebuild), (1, self._catch_up), (1, self._kill)]
        weights = [weight for weight, _ in choices]
        for _ in range(steps):
            self.rng.choices([step for _, step in choices], weights)[0]()
            try:
                self.compare()
            except AssertionError as error:
                error.add_note("\n".join(self.log))
                raise
        self.close()

    def compare(self) -> None:
        """Searches find what they should, of the rows that are live by now."""
        merged = self.merged()
        snapshot = self._snapshot()
        for _ in range(4):
            text, column = random_text(self.rng, 4) or "", self.rng.choice(self.columns)
            k = self.rng.choice((1, 3, 10, 100))
            ours, theirs = random_query(self.rng, self.columns, 1)
            check_ranking(self._search(snapshot, ours, k), merged.search(theirs), k)
            found = self._search(snapshot, Match(text, column), k)
            check_ranking(found, self._by_bm25s(text, column), k)

    def check_statistics(self) -> None:
        """N, document frequencies and the total length are those of the live rows."""
        snapshot = self._snapshot()
        for place, column in enumerate(self.columns):
            documents = [self._words(row[place]) for row in self.rows.values()]
            documents = [tokens for tokens in documents if tokens]
            holding = Counter(token for tokens in documents for token in set(tokens))
            asked = " ".join(row[place] or "" for row in self.rows.values())
            root = plan(snapshot, Match(asked, column), 1)
            list(root.execute())
            counted = next(n for n in nodes(root) if isinstance(n, GlobalBM25Exec))
            assert counted.metrics["documents"] == len(documents)
            assert counted.metrics["tokens"] == sum(map(len, documents))
            # The weights tell the document frequencies: they are strictly monotonous in them.
            weights = {
                token: inverse_document_frequency(len(documents), count)
                for token, count in holding.items()
            }
            assert weights_in(counted.corpus.resolved) == weights

    def merged(self) -> LanceRanking:
        """A fresh table of Lance's with the live rows."""
        table = self.table_of(list(self.rows), list(self.rows.values()))
        return LanceRanking(table, dict.fromkeys(self.columns, self._analyzer))

    def table_of(self, numbers: list[int], texts: list[tuple[str | None, str | None]]) -> pa.Table:
        """The rows of these keys with these texts."""
        columns = ([pair[place] for pair in texts] for place in range(2))
        return pa.table([numbers, *columns], self.schema)

    def close(self) -> None:
        """Nothing stays open."""
        self._writer.close()
        self.table.close()

    # Steps

    def _create(self) -> None:
        regions = self.rng.choice(([], [mw.bucket("id", 3)]))
        arguments = {"regions": regions} if regions else {}
        if self.rng.random() < 0.5:
            mw.create_table(self._uri, self.schema, primary_key="id", **arguments).close()
        else:
            lance.write_dataset(self._random_rows(20), self._uri)
            mw.enable(self._uri, primary_key="id", **arguments).close()
        self._open()
        for column in self.columns:
            self.table.create_index(column, "FTS", **self._analyzer)

    def _open(self) -> None:
        self._process = Process(self._uri)
        self.table = self._process.table
        options = {
            "durable": self.rng.random() < 0.5,
            "indexed": self.rng.random() < 0.7,
            "memtable_rows": self.rng.choice((15, 100_000)),
        }
        self._writer = self.table.writer(**options)
        self._durable = options["durable"]
        self.log.append(f"open {options}")

    def _random_rows(self, count: int) -> pa.Table:
        numbers = [self.rng.randrange(KEYS) for _ in range(count)]
        if not self.rows:
            numbers = list(dict.fromkeys(numbers))
        texts = [(random_text(self.rng), random_text(self.rng)) for _ in numbers]
        self.rows.update(zip(numbers, texts, strict=True))
        return over_hidden_values(self.table_of(numbers, texts))

    def _upsert(self) -> None:
        rows = self._random_rows(self.rng.choice((1, 2, 5, 20)))
        self._writer.upsert(rows)
        self.log.append(f"upsert {rows.to_pylist()}")

    def _delete(self) -> None:
        numbers = [self.rng.randrange(KEYS) for _ in range(self.rng.choice((1, 3, 10)))]
        self._writer.delete(pa.table({"id": numbers}))
        for number in numbers:
            self.rows.pop(number, None)
        self.log.append(f"delete {numbers}")

    def _flush(self) -> None:
        self._writer.flush()
        self.log.append("flush")

    def _reopen(self) -> None:
        self.close()
        self._open()

    def _merge(self) -> None:
        merged = self.table.merge()
        self.log.append(f"merge {merged} generations")

    def _rebuild(self) -> None:
        """An index anew over what is in the base table; the rest of it is not in any index."""
        for column in self.columns:
            if self.rng.random() < 0.7:
                self.table.create_index(column, "FTS", replace=True, **self._analyzer)
                self.log.append(f"index {column}")

    def _catch_up(self) -> None:
        """Indexes over what was merged since they were built."""
        self.log.append(f"build indexes: {self.table.build_indexes()}")

    def _kill(self) -> None:
        """The process dies; the next one replays the WAL."""
        if not self._durable:
            return
        self._process.kill()
        with suppress(MemWalError, ProcessKilledError):
            self.close()
        self.log.append("killed")
        self._open()

    # Reading

    def _snapshot(self) -> Snapshot:
        if not self._durable or self.rng.random() < 0.7:
            return self.table.snapshot()
        with as_another_process():
            return mw.open_table(self._uri).snapshot()

    def _by_bm25s(self, text: str, column: str) -> Ranking:
        place = self.columns.index(column)
        texts = [row[place] for row in self.rows.values()]
        return bm25s_ranking(list(self.rows), texts, text, self._analyzer)

    def _words(self, text: str | None) -> list[str]:
        return [] if text is None else words(text, self._analyzer)


def weights_in(query: Resolved) -> dict[str, np.float32]:
    found = {}
    if isinstance(query, Words):
        found = {token.text: token.weight for word in query.words for token in word}
    for part in parts_of(query):
        found |= weights_in(part)
    return found
