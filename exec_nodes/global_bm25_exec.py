"""GlobalBM25Exec: makes the scores of all sources those of one corpus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.liveness.stale_sets import PlanStale
from exec_nodes.text.postings.analyzer import Analyzer
from exec_nodes.text.postings.bm25 import K1, B
from exec_nodes.text.postings.live_corpus import LiveCorpus
from exec_nodes.text.query.reading import taken_for
from exec_nodes.text.query.tree import TextExpression
from exec_nodes.text.scoring.open import SOURCE_TEXTS, SourceTexts
from exec_nodes.text.scoring.resolve import Corpus, resolve
from exec_nodes.text.scoring.shared_weights import BM25Parameters, Handover
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class GlobalBM25Exec(UnaryNode):
    """Collects document counts, lengths and token frequencies of the sources of all FTSExecs below,
    computes the parameters of BM25 and hands them down (Specification 2, "Full-Text Search
    Queries"); yields what they yield.

    The specification adds up what each index counts. Here only live rows count: replaced and
    deleted ones are taken off, so that the ranking is that of one index over the merged table.

    `analyzers` has the analyzer of each column of the query. Counts documents and tokens: of the
    corpus, over all columns.
    """

    query: TextExpression
    analyzers: Mapping[str, Analyzer]
    stale: PlanStale
    handover: Handover = field(repr=False, compare=False)
    texts: SourceTexts = field(default=SOURCE_TEXTS, repr=False, compare=False)

    def label(self) -> str:
        """`GlobalBM25Exec: column=body, tokens=["fox", "dog"], k1=1.2, b=0.75`."""
        tokens = taken_for(self.query, self.analyzers)
        return (
            f"GlobalBM25Exec: column={'|'.join(self.analyzers)}, tokens=[{tokens}], k1={K1}, b={B}"
        )

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        self.handover.give(self._parameters)
        # As one batch: what the nodes above do to one costs more than its few rows.
        batches = list(self.child.execute(partition))
        if batches:
            yield pa.concat_batches(batches)

    @lazy_property
    def _parameters(self) -> BM25Parameters:
        stale, sources = self.stale.compute(), self.stale.sources
        live = {}
        for column, analyzer in self.analyzers.items():
            live[column] = LiveCorpus(
                [
                    self.texts.live(source, column, analyzer, rows)
                    for source, rows in zip(sources, stale, strict=True)
                ]
            )
        self.metrics.add(
            documents=sum(corpus.documents for corpus in live.values()),
            tokens=sum(corpus.total_length for corpus in live.values()),
        )
        corpora = {
            column: Corpus(corpus, [text.text for text in corpus.texts])
            for column, corpus in live.items()
        }
        by_source = [
            {column: corpus.texts[ordinal] for column, corpus in live.items()}
            for ordinal in range(len(sources))
        ]
        return BM25Parameters(resolve(self.query, corpora), by_source)
