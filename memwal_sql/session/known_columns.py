"""KnownColumnsExec: the columns of a query in the types that it was made for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.evolution.known import known_rows
from exec_nodes.filter_exec import FilterExec
from exec_nodes.node import Node
from exec_nodes.unary_node import UnaryNode
from memwal_sql.read.planning import scan
from planner.model import Query, Snapshot


@dataclass(frozen=True)
class KnownColumnsExec(UnaryNode):
    """Yields the child's rows in the types of `columns`, which were widened since."""

    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        return self.columns

    def label(self) -> str:
        pairs = zip(self.columns, self.child.schema, strict=True)
        changed = [f"{field.name} {field.type}" for field, now in pairs if field.type != now.type]
        return f"KnownColumnsExec: columns=[{', '.join(changed)}]"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        for batch in self.child.execute(partition):
            yield known_rows(batch, self.columns)


def known_scan(query: Query, snapshot: Snapshot, columns: pa.Schema, wider: frozenset[str]) -> Node:
    """The plan of a scan in the types of `columns`, of which `wider` were widened since:
    conditions on these are of their old types, and are applied behind the scan."""
    later = tuple(filter_ for filter_ in query.filters if wider.intersection(filter_.columns))
    names = dict.fromkeys([*query.columns, *(name for f in later for name in f.columns)])
    pushed = tuple(filter_ for filter_ in query.filters if filter_ not in later)
    limit = None if later else query.limit
    node: Node = KnownColumnsExec(
        scan(Query(tuple(names), pushed, limit), snapshot), _fields(columns, list(names))
    )
    return FilterExec(node, later, _fields(columns, query.columns)) if later else node


def _fields(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names])
