"""CoalesceFirstExec: the first input that knows the key decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.base.columns import TOMBSTONE
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.node import Node, Statistics


@dataclass(frozen=True)
class CoalesceFirstExec(Node):
    """Executes its inputs in order, newest first, until one yields a row; the rest never run
    (Specification 2, Appendix 3).

    A tombstone is such a row: the key is deleted, and nothing is returned. Yields the inputs'
    columns without `_tombstone`. Counts sources_skipped, the inputs that did not have to run.
    """

    inputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InvalidCallError("a CoalesceFirstExec needs at least one input")

    @property
    def schema(self) -> pa.Schema:
        """The inputs' columns without `_tombstone`."""
        return pa.schema([f for f in self.inputs[0].schema if f.name != TOMBSTONE])

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @property
    def statistics(self) -> Statistics:
        return Statistics(1, False)

    def label(self) -> str:
        return "CoalesceFirstExec: return_first_non_null"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        names = self.schema.names
        for place, child in enumerate(self.inputs):
            for batch in child.execute(partition):
                if not batch.num_rows:
                    continue
                self.metrics.add(sources_skipped=len(self.inputs) - place - 1)
                if not batch.column(TOMBSTONE)[0].as_py():
                    yield batch.select(names)
                return
