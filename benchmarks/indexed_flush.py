"""Flushing a MemTable with vectors and texts against Lance building the same indexes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import WrongResultError, shuffled
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.texts import ANALYZER, documents
from benchmarks.support.timing import lower_quartile, seconds
from benchmarks.support.workspace import Workspace
from memwal_sql.storage.base.index_files import IndexFiles

_DIMENSIONS = 64
_PARTITIONS = 64
_ROUNDS = 4


def indexed_flush(work: Workspace) -> Iterator[Result]:
    """A generation with its btree, IVF_PQ and full-text index; Lance gets the same model."""
    rows = work.sizes.flush_rows
    stream = _rows(rows, 3)
    folder = work.folder / "indexed_flush"
    lance.write_dataset(_rows(max(rows // 5, 1_000), 4), folder)
    table = mw.enable(folder, primary_key="id")
    table.create_index("body", "FTS", **ANALYZER)
    partitions = max(1, min(_PARTITIONS, rows // 2_000))
    table.create_index("embedding", "IVF_PQ", num_partitions=partitions, num_sub_vectors=16)
    model = _model(lance.dataset(folder))
    numbers = count()

    def by_lance() -> None:
        dataset = lance.write_dataset(stream, work.folder / f"built-{next(numbers)}")
        dataset.create_scalar_index("id", "BTREE")
        dataset.create_scalar_index("body", "INVERTED", **ANALYZER)
        dataset.create_index("embedding", "IVF_PQ", num_sub_vectors=16, **model)

    ours, theirs = [], []
    with table.writer(
        durable=False, memtable_rows=2 * rows, memtable_bytes=(1 << 31) - 1
    ) as writer:
        for _ in range(_ROUNDS):
            writer.upsert(stream)
            writer.sync()
            ours.append(seconds(writer.flush))
            theirs.append(seconds(by_lance))
        rows_read = table.scan().read_all()
    if rows_read.sort_by("id").combine_chunks() != stream.sort_by("id").combine_chunks():
        raise WrongResultError("indexed flush: other rows than were written")
    name = f"flush of {rows:,} rows with vector and text index"
    yield at_most_ratio(name, lower_quartile(ours), lower_quartile(theirs), "Lance", 1.3)


def _model(dataset: Any) -> dict[str, Any]:
    (index,) = (index for index in dataset.describe_indices() if index.name == "embedding_idx")
    files = IndexFiles(dataset.uri, index.segments[0].uuid)
    centroids = dataset.get_ivf_model(index.name).centroids
    return {"ivf_centroids": centroids, "pq_codebook": files.codebook()}


def _rows(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    vectors = pa.array(random.random(rows * _DIMENSIONS, np.float32))
    column = pa.FixedSizeListArray.from_arrays(vectors, _DIMENSIONS)
    return documents(shuffled(rows), seed).append_column("embedding", column)
