"""The state that the nodes of a full-text search share: the corpus, and the query's weights in
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exec_nodes.base.lazy import lazy_property
from exec_nodes.liveness.stale_sets import PlanStale
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.corpus import LiveCorpus, LiveText
from exec_nodes.text.query.tree import TextExpression
from exec_nodes.text.scoring.open import SOURCE_TEXTS, SourceTexts
from exec_nodes.text.scoring.resolve import Corpus, Resolved, resolve


@dataclass(frozen=True)
class QueryCorpus:
    """A query and the live texts of a plan's sources, which count as one corpus, so that the
    ranking is that of one index over the merged table. Computed once, when first read.

    `analyzers` has the analyzer of each column of the query. `weights` are those of a larger
    corpus, of which the sources are a part.
    """

    query: TextExpression
    analyzers: Mapping[str, Analyzer]
    stale: PlanStale
    source_texts: SourceTexts = SOURCE_TEXTS
    weights: Resolved | None = None

    @lazy_property
    def live(self) -> Mapping[str, LiveCorpus]:
        """The live texts, by column."""
        stale, sources = self.stale.compute(), self.stale.sources
        return {
            column: LiveCorpus(
                [
                    self.source_texts.of(source, column, analyzer).at(rows)
                    for source, rows in zip(sources, stale, strict=True)
                ]
            )
            for column, analyzer in self.analyzers.items()
        }

    @lazy_property
    def resolved(self) -> Resolved:
        """The query with the weights and norms of the corpus."""
        if self.weights is not None:
            return self.weights
        corpora = {
            column: Corpus(corpus, [text.text for text in corpus.texts])
            for column, corpus in self.live.items()
        }
        return resolve(self.query, corpora)

    def texts(self, ordinal: int) -> Mapping[str, LiveText]:
        """The live texts of a source, by column."""
        return {column: corpus.texts[ordinal] for column, corpus in self.live.items()}
