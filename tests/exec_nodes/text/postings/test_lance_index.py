"""What is read of the files of Lance's full-text index."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import lance
import pyarrow as pa

from exec_nodes.resident.store import ResidentStore
from exec_nodes.text.postings.analyzer import Analyzer
from exec_nodes.text.postings.lance_index import open_index
from tests.model.racing import race

TOKENS = [f"word{number}" for number in range(400)]


def test_threads_read_posting_lists_at_once(tmp_path: Path) -> None:
    texts = [f"{token} every" for token in TOKENS]
    dataset = lance.write_dataset(pa.table({"body": texts}), tmp_path / "t")
    dataset.create_scalar_index("body", "INVERTED")
    analyzer = Analyzer.of({})
    for _ in range(2):
        segments = open_index(
            lance.dataset(tmp_path / "t"), "body", analyzer, None, ResidentStore()
        )
        assert segments is not None
        (partition,) = segments[0].partitions

        def read(first: int, partition: object = partition) -> int:
            found = map(partition.postings, TOKENS[first::8])  # type: ignore[attr-defined]
            return sum(postings is not None for postings in found)

        assert race(*(partial(read, first) for first in range(8))) == [50] * 8
