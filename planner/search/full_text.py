"""The plan of a full-text search (Specification 2, "Full-Text Search Queries")."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.arrow.text_columns import column_of, text_paths
from exec_nodes.base.columns import SCORE
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.index_info import IndexInfo
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.fts_exec import FTSExec
from exec_nodes.global_bm25_exec import GlobalBM25Exec
from exec_nodes.global_limit_exec import GlobalLimitExec
from exec_nodes.liveness.masks import Masks
from exec_nodes.liveness.stale_sets import STALE_SETS, PlanStale
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.sort_exec import SortExec
from exec_nodes.sources.source import Source
from exec_nodes.take_exec import TakeExec
from exec_nodes.text.query.tree import TextExpression, columns_of
from exec_nodes.text.scoring.query_corpus import QueryCorpus
from exec_nodes.text.scoring.resolve import Resolved
from exec_nodes.union_exec import UnionExec
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.sources import bridged, searched


@dataclass(frozen=True, slots=True)
class TextQuery:
    """The `k` best texts.

    Attributes:
        query: the query and its columns.
        columns: the columns to return besides `_score`.
        filters: conjunctive; they choose among the rows and never change a score.
        weights: those of a larger corpus, where the snapshot is a part of one.
    """

    query: TextExpression
    k: int
    columns: tuple[str, ...]
    filters: tuple[Condition, ...] = ()
    weights: Resolved | None = None


def plan_full_text_search(query: TextQuery, snapshot: Snapshot) -> TakeExec:
    """The `k` live rows that match the query and all filters with the highest scores, best first;
    `columns` and `_score` (float32).

    Scores are those of one index over the whole table: regions that the filters rule out are not
    searched, but counted, so the snapshot must have them. The texts of a column without an index
    are tokenized with Lance's default analyzer. Raises InvalidCallError for a column that does not
    exist or has no strings, and for a negative `k`. Pure.
    """
    columns = sorted(columns_of(query.query))
    _check(query, columns, snapshot.info.schema)
    indexes = text_indexes(query, snapshot)
    snapshot = bridged(snapshot, *indexes.values())
    regions = tuple([region.sources for region in snapshot.regions])
    read_columns = tuple(dict.fromkeys(map(column_of, columns)))
    stale = PlanStale(snapshot.base, regions, STALE_SETS, read_columns, snapshot.masks)
    analyzers = {column: _analyzer(index) for column, index in indexes.items()}
    corpus = QueryCorpus(query.query, analyzers, stale, weights=query.weights)
    read, pruned = searched(snapshot, query.filters)
    scans = tuple(
        FTSExec(
            source,
            ordinal,
            corpus,
            query.k,
            query.filters,
            tuple(_name(indexes[column], source, snapshot) for column in columns),
        )
        for ordinal, source in enumerate(stale.sources)
        if ordinal in read
    )
    ranked = GlobalBM25Exec(UnionExec(scans, 1), corpus)
    live = FilterStaleExec(ranked, Masks(stale, matched=True), snapshot.info.primary_key)
    best = GlobalLimitExec(
        SortExec(live, SCORE, stale.sources, snapshot.info.key_schema, query.k, descending=True),
        query.k,
    )
    output = pa.schema([snapshot.info.schema.field(name) for name in query.columns])
    node = TakeExec(best, stale.sources, output)
    node.metrics.add(regions_pruned=pruned)
    return node


def text_indexes(query: TextQuery, snapshot: Snapshot) -> dict[str, IndexInfo | None]:
    """The index that each column of a query is searched by, in the order of their names."""
    return {column: index_of(column, snapshot) for column in sorted(columns_of(query.query))}


def analyzer_of(column: str, snapshot: Snapshot) -> Analyzer:
    """The analyzer of a column: its index's; without one Lance's default."""
    return _analyzer(index_of(column, snapshot))


def _analyzer(index: IndexInfo | None) -> Analyzer:
    return Analyzer.of({} if index is None else index.parameters)


def _check(query: TextQuery, columns: list[str], schema: pa.Schema) -> None:
    if query.k < 0:
        raise InvalidCallError(f"k={query.k} rows can't be returned: give 0 or more")
    for name in (*map(column_of, columns), *query.columns):
        if schema.get_field_index(name) < 0:
            names = ", ".join(schema.names)
            raise InvalidCallError(f"there is no column {name!r}; the table has {names}")
    texts = text_paths(schema)
    for name in columns:
        if name not in texts:
            raise InvalidCallError(f"there is no text in {name!r}; there are texts in {texts}")


def index_of(column: str, snapshot: Snapshot) -> IndexInfo | None:
    """The index that serves a column's texts: the first by name, preferring those that generations
    have too. None without an index."""
    indexes = (index for index in snapshot.indexes if index.is_text and index.column == column)
    return min(indexes, key=lambda index: (not index.maintained, index.name), default=None)


def _name(index: IndexInfo | None, source: Source, snapshot: Snapshot) -> str | None:
    """The index that a source may have of its own."""
    if index is None or not (index.maintained or source is snapshot.base):
        return None
    return index.name
