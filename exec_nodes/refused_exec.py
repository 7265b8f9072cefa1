"""RefusedExec: stands where a plan would that must not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.base.errors import UnsupportedError
from exec_nodes.node import Node


@dataclass(frozen=True)
class RefusedExec(Node):
    """Raises UnsupportedError with the reason, so that EXPLAIN can show it."""

    reason: str
    output: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema `output` that the other plan would have."""
        return self.output

    def label(self) -> str:
        return f"RefusedExec: {self.reason}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        raise UnsupportedError(self.reason)
