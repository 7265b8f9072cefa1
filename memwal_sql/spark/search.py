"""Searches as Spark jobs: tasks rank shares of one pinned snapshot, and the driver takes the best.

A row's score depends on all texts, so a text search has a job before that, in which tasks count
their shares. Tasks return locations and scores; the driver reads the columns of the best `k` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from exec_nodes.base.columns import SOURCE
from exec_nodes.take_exec import TakeExec
from exec_nodes.text.scoring.parts import count_part, weigh
from exec_nodes.text.scoring.resolve import Resolved
from memwal_sql.errors import InvalidCallError
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.read.planning import stream
from memwal_sql.read.snapshots import Consistency
from memwal_sql.search import request
from memwal_sql.search.options import DEFAULT_K, HybridOptions, TextOptions, VectorOptions
from memwal_sql.search.request import Search
from memwal_sql.session.filter_text import prefilters
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.spark.maintenance import map_shares, parallelism
from memwal_sql.spark.options import READ, STORAGE_PREFIX, Options, parse_options
from memwal_sql.spark.reader import Share, ShareTable, parts_of, shares_of
from memwal_sql.spark.tables import table_of
from memwal_sql.spark.types import as_spark, read_schema, spark_schema
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.shares import corpus_of, over_candidates, rankings

_OF_INDEXES = ("nprobes", "refine_factor", "ef")
Request = Callable[[pa.Schema], Search]
Run = Callable[[str, Sequence[Share], Callable[[Share], Any]], list[Any]]
"""Calls a function for each share, in tasks, and returns the results in order."""


def vector_search(
    spark: SparkSession,
    uri: str,
    column: str,
    query: Any,
    k: int = DEFAULT_K,
    filter: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    *,
    consistency: Consistency = "strong",
    storage_options: Mapping[str, str] | None = None,
    **options: Unpack[VectorOptions],
) -> DataFrame:
    """The rows of `Table.vector_search(..., exact=True)`: tasks measure every vector."""
    search = partial(
        request.vector_search, column=column, query=query, k=k, options=_exact(options)
    )
    return _searched(spark, uri, search, filter, columns, consistency, storage_options)


def full_text_search(
    spark: SparkSession,
    uri: str,
    column: str | Sequence[str],
    query: Any,
    k: int = DEFAULT_K,
    filter: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    *,
    consistency: Consistency = "strong",
    storage_options: Mapping[str, str] | None = None,
    **options: Unpack[TextOptions],
) -> DataFrame:
    """The rows of `Table.full_text_search`, with the same scores."""
    search = partial(
        request.full_text_search, column=column, query=query, k=k, options=dict(options)
    )
    return _searched(spark, uri, search, filter, columns, consistency, storage_options)


def hybrid_search(
    spark: SparkSession,
    uri: str,
    vector_column: str,
    vector: Any,
    text_column: str | Sequence[str],
    text: Any,
    k: int = DEFAULT_K,
    filter: str | None = None,  # noqa: A002
    columns: Sequence[str] | None = None,
    *,
    consistency: Consistency = "strong",
    storage_options: Mapping[str, str] | None = None,
    **options: Unpack[HybridOptions],
) -> DataFrame:
    """The rows of `Table.hybrid_search(..., exact=True)`."""
    search = partial(
        request.hybrid_search,
        vector_column=vector_column,
        vector=vector,
        text_column=text_column,
        text=text,
        k=k,
        options=_exact(options),
    )
    return _searched(spark, uri, search, filter, columns, consistency, storage_options)


def _exact(options: Mapping[str, Any]) -> dict[str, Any]:
    unused = [name for name in _OF_INDEXES if options.get(name) is not None]
    if unused or options.get("exact") is False:
        raise InvalidCallError(
            f"tasks measure every vector, so {unused or 'exact=False'} has no meaning: leave it "
            "out, or search in one process with Table.vector_search"
        )
    return {**options, "exact": True}


@dataclass(frozen=True)
class _SharedSearch:
    """What every task knows of a search; it pickles."""

    options: Options
    pinned: PinnedSnapshot
    request: Request = field(repr=False)
    columns: tuple[str, ...]
    condition: str | None
    schema: pa.Schema

    def plan(self, share: Share, weights: Resolved | None = None) -> TakeExec:
        """The plan of the search in a share of the table."""
        snapshot = self._snapshot(share)
        filters = _filters(self.condition, self.schema) or ()
        return self.request(self.schema).plan(
            self.columns, analyzed(filters, snapshot), snapshot, weights
        )

    def table(self, share: Share) -> ShareTable:
        """A share of the snapshot."""
        return ShareTable(self.options, self.pinned, share, self.schema)

    def _snapshot(self, share: Share) -> Snapshot:
        shared = self.table(share)
        snapshot, base = shared.snapshot, shared.base
        rows = snapshot.base or base.source.share(frozenset())  # a plan has one source at least
        return replace(snapshot, base=rows, indexes=base.indexes.infos)


def _searched(
    spark: SparkSession,
    uri: str,
    search: Request,
    condition: str | None,
    columns: Sequence[str] | None,
    consistency: Consistency,
    storage_options: Mapping[str, str] | None,
) -> DataFrame:
    storage = {f"{STORAGE_PREFIX}{name}": text for name, text in (storage_options or {}).items()}
    given = {"path": uri, "consistency": consistency, **storage}
    options = parse_options(given, READ, "a search")
    tasks = parallelism(spark)
    rows = search_in_shares(options, search, condition, columns, tasks, partial(map_shares, spark))
    kinds = spark_schema(rows.schema)
    # PySpark makes no list columns of a table without any batch.
    batches = rows.to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    converted = [as_spark(batch, read_schema(kinds)) for batch in batches]
    return spark.createDataFrame(pa.Table.from_batches(converted, read_schema(kinds)), kinds)


def search_in_shares(
    options: Options,
    search: Request,
    condition: str | None,
    columns: Sequence[str] | None,
    tasks: int,
    run: Run,
) -> pa.Table:
    """The result of a search whose work `run` does, in at most so many tasks. It gets a text that
    says what they do."""
    table = table_of(options)
    schema = table.schema
    names = tuple(schema.names if columns is None else columns)
    requested, filters = search(schema), _filters(condition, schema)
    ruling = () if requested.counts_all else [f.predicate for f in filters or ()]
    pinned = table.pin(options.consistency, ruling)
    shared = _SharedSearch(options, pinned, search, names, condition, schema)
    plan, bounds = shared.plan(Share(whole=True)), _bounds(shared.table(Share(whole=True)).snapshot)
    shares = [] if filters is None else shares_of(parts_of(options, pinned), tasks)
    what = f"{len(shares)} shares of {options.uri}"
    weights = None
    if (corpus := corpus_of(plan)) is not None:
        parts = run(f"counting texts of {what}", shares, partial(_counted, shared))
        weights = weigh(corpus.query, corpus.analyzers, parts)
    ranked = run(f"searching {what}", shares, partial(_ranked, shared, weights, bounds))
    candidates = [
        pa.concat_tables([node.schema.empty_table(), *(rows[place] for rows in ranked)])
        for place, node in enumerate(rankings(plan))
    ]
    return stream(over_candidates(plan, candidates)).read_all()


def _filters(condition: str | None, schema: pa.Schema) -> tuple[Condition, ...] | None:
    """None if no row can meet the condition."""
    return () if condition is None else prefilters(condition, schema)


def _counted(shared: _SharedSearch, share: Share) -> Any:
    corpus = corpus_of(shared.plan(share))
    return {} if corpus is None else count_part(corpus)


def _ranked(
    shared: _SharedSearch, weights: Resolved | None, bounds: Sequence[int], share: Share
) -> list[pa.Table]:
    """The best rows of a share by each ranking, with the ordinals of the whole snapshot, whose
    regions begin at `bounds`."""
    own = [ordinal for n in share.regions for ordinal in range(bounds[n], bounds[n + 1])]
    ordinals = np.array([0, *own], np.int32)  # the base table's is the first
    ranked = []
    for node in rankings(shared.plan(share, weights)):
        rows = pa.Table.from_batches(node.execute(), node.schema)
        place = rows.schema.get_field_index(SOURCE)
        own = pa.array(ordinals[rows.column(place).to_numpy()])
        ranked.append(rows.set_column(place, rows.schema.field(place), own))
    return ranked


def _bounds(whole: Snapshot) -> list[int]:
    """The ordinal of the first source of each region, and the one after the last."""
    return [*accumulate((len(region.sources) for region in whole.regions), initial=1)]
