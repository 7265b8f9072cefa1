"""BloomFilterGuardExec: keeps a lookup away from a source that can't have the key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.explain.labels import guard_label
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.sources.source import Source
from exec_nodes.unary_node import UnaryNode


@dataclass(frozen=True)
class BloomFilterGuardExec(UnaryNode):
    """Executes the child only if the source might hold `key` (Specification 2, Appendix 3).

    A filter's false hit costs a lookup and changes no answer. A MemTable answers exactly. Counts
    bloom_hits and bloom_skips.
    """

    source: Source
    key: KeyBatch

    def label(self) -> str:
        """`BloomFilterGuardExec: bf[region_a][gen=1]`, or `keys[region_a][gen=2]` of a MemTable."""
        return f"BloomFilterGuardExec: {guard_label(self.source)}"

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        if not self.source.might_contain(self.key).any():
            self.metrics.add(bloom_skips=1)
            return
        self.metrics.add(bloom_hits=1)
        yield from self.child.execute(partition)
