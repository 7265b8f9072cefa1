"""Searches whose sources several processes rank: each its share, and the best of all together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from exec_nodes.fuse_exec import FuseExec
from exec_nodes.global_bm25_exec import GlobalBM25Exec
from exec_nodes.global_limit_exec import GlobalLimitExec
from exec_nodes.node import Node
from exec_nodes.sort_exec import SortExec
from exec_nodes.take_exec import TakeExec
from exec_nodes.text.scoring.query_corpus import QueryCorpus


def rankings(plan: TakeExec) -> tuple[Node, ...]:
    """The nodes of a search's plan that yield the best rows of a ranking: two of a hybrid search,
    the vector search's first, else one."""
    fused = _fused(plan)
    return (plan.child,) if fused is None else fused.inputs


def corpus_of(plan: TakeExec) -> QueryCorpus | None:
    """The texts that a search's plan ranks."""
    nodes: list[Node] = [plan]
    for node in nodes:
        if isinstance(node, GlobalBM25Exec):
            return node.corpus
        nodes += node.children
    return None


def over_candidates(plan: TakeExec, candidates: Sequence[pa.Table]) -> TakeExec:
    """The plan over rows that each of its `rankings` has yielded elsewhere, of any share of its
    sources: narrow rows (see `base.columns`) with the ordinals of the plan."""
    ranked = [_over(node, rows) for node, rows in zip(rankings(plan), candidates, strict=True)]
    fused = _fused(plan)
    if fused is None:
        return replace(plan, child=ranked[0])
    return replace(plan, child=_above(plan.child, replace(fused, inputs=tuple(ranked))))


def _fused(plan: TakeExec) -> FuseExec | None:
    below = _sort_of(plan.child).child
    return below if isinstance(below, FuseExec) else None


def _over(ranking: Node, rows: pa.Table) -> Node:
    return _above(ranking, _Candidates(rows))


def _above(limited: Node, child: Node) -> Node:
    sort = _sort_of(limited)
    return replace(limited, child=replace(sort, child=child))  # type: ignore[call-arg]


def _sort_of(limited: Node) -> SortExec:
    if not (isinstance(limited, GlobalLimitExec) and isinstance(limited.child, SortExec)):
        raise TypeError(f"{limited.label()} does not limit a sort")
    return limited.child


@dataclass(frozen=True)
class _Candidates(Node):
    """Yields rows that were found elsewhere."""

    rows: pa.Table

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return self.rows.schema

    def label(self) -> str:
        """`Candidates: rows=20`."""
        return f"Candidates: rows={self.rows.num_rows}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches()
