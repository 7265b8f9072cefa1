"""Searches as methods of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack

import pyarrow as pa

from memwal_sql.read.planning import stream
from memwal_sql.read.snapshots import Consistency
from memwal_sql.search.request import (
    DEFAULT_K,
    HybridOptions,
    Search,
    TextOptions,
    VectorOptions,
    full_text_search,
    hybrid_search,
    vector_search,
)
from memwal_sql.search.rerank import Rerank, candidate_count, check_rerank, reranked
from memwal_sql.session.filter_text import prefilters
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.handle import TableHandle


class SearchedTable(TableHandle):
    """Vector, full-text and hybrid search."""

    def vector_search(
        self,
        column: str,
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        candidates: int | None = None,
        **options: Unpack[VectorOptions],
    ) -> pa.Table:
        """The `k` live rows nearest to a vector, nearest first, with `_distance` (float32).

        Args:
            query: a vector as a list, array or bytes; or several, as the rows of a matrix or a list
                of lists. Each of several has its `k` rows, and `query_index` (int32) gives its
                position. If rows have lists of vectors, several are one query: `_distance` sums the
                least distance of each of them.
            filter: a SQL condition; only rows that meet it are ranked.
            columns: the columns; all of them by default.
            rerank: a function that takes a `pyarrow.Table` of the `candidates` best rows (by
                default four times `k`) and returns an array with a score for each. The `k` rows
                with the highest scores are returned, and `_relevance_score` (float32).
            options: `metric` (`"l2"`, squared; `"cosine"`, `"dot"`, `"hamming"`; by default the
                column's index decides), `nprobes`, `refine_factor` and `ef` for how thoroughly an
                index is searched, `exact=True` to measure every row, `lower_bound` and
                `upper_bound` for distances between these only.

        Without an index on the column every row is measured. Raises InvalidCallError naming the
        value and the remedy.

        Examples:
            >>> schema = pa.schema({"id": pa.int64(), "vec": pa.list_(pa.float32(), 2)})
            >>> points = mw.create_table("points", schema, "id")
            >>> vectors = [[0.0, 1.0], [3.0, 0.0]]
            >>> with points.writer() as writer:
            ...     result = writer.upsert({"id": [1, 2], "vec": vectors})
            >>> points.vector_search("vec", [0.0, 0.5], k=1, columns=["id"]).to_pylist()
            [{'id': 1, '_distance': 0.25}]
        """
        rows = candidate_count(k, rerank, candidates)
        search = partial(vector_search, column=column, query=query, k=rows, options=options)
        return self._searched(search, filter, columns, consistency, rerank, k)

    def full_text_search(
        self,
        column: str | Sequence[str],
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        candidates: int | None = None,
        **options: Unpack[TextOptions],
    ) -> pa.Table:
        """The `k` live rows that match a text query best, best first, with `_score` (float32).

        Scores are BM25 scores over all live rows, whatever part of the table they are in.

        Args:
            column: the column to search, or several, of which the best one counts: texts, lists of
                texts, which count as one text, or fields of structs with these, as `about.title`.
            query: words, any of which may match; or a query in the JSON form, a string or a
                mapping: `{"phrase": {"query": "write ahead log", "slop": 1}}` (see
                `exec_nodes.text.query.parse`). An empty text and stop words find nothing. In words,
                AND, OR, NOT, quotation marks, + and - have no meaning: `operator="AND"` asks for
                all words, and the JSON form has `boolean` and `phrase`. With `plain=True` any text
                is words, even one that begins with `{`: for texts that users type.
            filter: a SQL condition; only rows that meet it are ranked. It changes no score.
            columns: the columns; all of them by default.
            rerank, candidates: as in `vector_search`.
            options: for a query of words: `operator` (`"OR"`, `"AND"`), `boost`, `fuzziness`,
                `max_expansions`, `prefix_length`, `minimum_should_match`, `plain`.

        Without an index on the column its texts are tokenized. Raises InvalidCallError naming the
        value and the remedy.

        Examples:
            >>> table.full_text_search("city", "rome", columns=["id"])["id"].to_pylist()
            [2]
        """
        rows = candidate_count(k, rerank, candidates)
        search = partial(full_text_search, column=column, query=query, k=rows, options=options)
        return self._searched(search, filter, columns, consistency, rerank, k)

    def hybrid_search(
        self,
        vector_column: str,
        vector: Any,
        text_column: str | Sequence[str],
        text: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        **options: Unpack[HybridOptions],
    ) -> pa.Table:
        """The `k` live rows that rank best in a vector and a text search together, best first.

        The two rankings are fused by reciprocal rank: a row gets `weight / (60 + rank)` from each
        ranking that has it. Adds `_distance` and `_score` (null if that search does not have the
        row) and `_relevance_score` (float32).

        Args:
            rerank: as in `vector_search`; it gets all candidates of both rankings, ordered by
                `_relevance_score`, and the scores that it returns replace that.
            options: the options of the two searches, and `candidates`, the number of rows of each
                ranking that count (four times `k`), `vector_weight` and `text_weight` (1), and
                `rrf_k` (60).
        """
        search = partial(
            hybrid_search,
            vector_column=vector_column,
            vector=vector,
            text_column=text_column,
            text=text,
            k=k,
            options=options,
            whole=rerank is not None,
        )
        return self._searched(search, filter, columns, consistency, rerank, k)

    def _searched(
        self,
        search: Callable[[pa.Schema], Search],
        condition: str | None,
        columns: Sequence[str] | None,
        consistency: str,
        rerank: Rerank | None,
        k: int,
    ) -> pa.Table:
        """The results of a search among the rows for which `condition` is true, the best first: the
        `k` that `rerank` scores highest, if it is given."""

        def run_search(base: BaseTable) -> pa.Table:
            schema = base.info.schema
            request, names = search(schema), self._columns(columns, schema)
            if rerank is not None:
                check_rerank(rerank, request)
            filters = () if condition is None else prefilters(condition, schema)
            if filters is None:  # no row meets the condition
                node = request.plan(names, (), self._collector.snapshot(base, consistency))
                return node.schema.empty_table()
            ruling = () if request.counts_all else [filter_.predicate for filter_ in filters]
            snapshot = self._collector.snapshot(base, consistency, ruling)
            return stream(request.plan(names, analyzed(filters, snapshot), snapshot)).read_all()

        rows = self._collector.query(consistency, run_search)
        return rows if rerank is None else reranked(rows, rerank, k)
