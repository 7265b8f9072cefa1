"""GlobalBM25Exec: makes the scores of all sources scores over one corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.postings.bm25 import K1, B
from exec_nodes.text.query.reading import taken_for
from exec_nodes.text.scoring.query_corpus import QueryCorpus
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class GlobalBM25Exec(UnaryNode):
    """Collects document counts, lengths and token frequencies of the sources of all FTSExecs below
    and computes the parameters of BM25, by which these rank (Specification 2, "Full-Text Search
    Queries"); yields what they yield.

    The specification adds up the counts of each index. Here only live rows count: replaced and
    deleted ones are subtracted, so that the ranking is that of one index over the merged table.

    Counts documents and tokens: of the corpus, over all columns.
    """

    corpus: QueryCorpus

    def label(self) -> str:
        query, analyzers = self.corpus.query, self.corpus.analyzers
        tokens = taken_for(query, analyzers)
        return f"GlobalBM25Exec: column={'|'.join(analyzers)}, tokens=[{tokens}], k1={K1}, b={B}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        live = self.corpus.live.values()
        self.metrics.add(
            documents=sum([texts.documents for texts in live]),
            tokens=sum([texts.total_length for texts in live]),
        )
        _ = self.corpus.resolved  # in this node's time, before those below need it
        # In one batch: each batch costs the nodes above more than its few rows.
        batches = list(self.child.execute(partition))
        if batches:
            yield concatenated(batches)
