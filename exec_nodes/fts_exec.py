"""FTSExec: the best texts of one source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.base.columns import SCORE_ROWS, Filter
from exec_nodes.explain.labels import conditions, source_label
from exec_nodes.node import Node, Statistics
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from exec_nodes.text.query.tree import columns_of
from exec_nodes.text.scoring.query_corpus import QueryCorpus
from exec_nodes.text.scoring.rank import rank


@dataclass(frozen=True)
class FTSExec(Node):
    """Yields the `k` best live rows of a source that match a text query and all filters
    (Specification 2, "Full-Text Search Queries"), and those as good as the last of these; all of
    them where they are fewer.

    Scores are over the whole corpus, as the GlobalBM25Exec above computes it: they are the same
    wherever a row is stored, and filters only choose among the rows. Yields `_rowaddr`, `_source`
    and `_score` (float32), best first.

    `indexes` are for the label: by column (in the order of their names) the index that the source
    may have; None if its texts are tokenized for the search.
    """

    source: Source
    ordinal: int
    corpus: QueryCorpus
    k: int
    filters: tuple[Filter, ...]
    indexes: tuple[str | None, ...]

    @property
    def schema(self) -> pa.Schema:
        """`_rowaddr`, `_source`, `_score`."""
        return SCORE_ROWS

    @property
    def statistics(self) -> Statistics:
        return Statistics(self.k, False)

    def label(self) -> str:
        """`FTSExec: base_table[gen=-1], version=7, column=body, query=..., k=10, index=body_idx,
        filter=[...]`; `index=in_memory` of a MemTable whose writer has tokenized all its texts, and
        `index=tokenized` where the search tokenizes some that are not known."""
        query = self.corpus.query
        names = sorted(columns_of(query))
        columns = "|".join(names)
        indexes = "|".join(map(self._index, names, self.indexes))
        filters = conditions(self.filters)
        return (
            f"FTSExec: {source_label(self.source)}, column={columns}, query={query}, "
            f"k={self.k}, index={indexes}, filter=[{filters}]"
        )

    def _index(self, column: str, name: str | None) -> str:
        source, analyzer = self.source, self.corpus.analyzers[column]
        if isinstance(source, MemTableSource):
            return "in_memory" if source.tokenized(column, analyzer) else "tokenized"
        if name is None or not isinstance(source, LanceSource):
            return "tokenized"
        indexed = not source.is_open or self.corpus.source_texts.indexed(source, column, analyzer)
        return name if indexed else "tokenized"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        matching = self.source.matching(self.filters) if self.filters else None
        texts = self.corpus.texts(self.ordinal)
        addresses, scores = rank(self.corpus.resolved, texts, matching, self.k)
        if len(addresses):
            sources = np.full(len(addresses), self.ordinal, np.int32)
            arrays = [pa.array(addresses), pa.array(sources), pa.array(scores)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCORE_ROWS)
