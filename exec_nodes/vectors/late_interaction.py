"""Rows with several vectors each, and queries of several vectors (late interaction, MaxSim).

As in Lance the distance of a row is a sum over the vectors of the query: of the least distance of
each to any vector of the row.
"""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.arrays import flattened
from exec_nodes.base.columns import RowAddresses
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.vectors.column import VectorColumn, distances
from exec_nodes.vectors.nearest import Candidates, NearestQuery


def late_candidates(lists: pa.Array, addresses: RowAddresses, query: NearestQuery) -> Candidates:
    """The rows that have a distance within the bounds, the nearest first, by the lists of their
    vectors. Vectors with a null count as if they were not there."""
    values, rows = flattened(lists)
    vectors = VectorColumn.decoded(pa.chunked_array([values]), addresses[rows])
    if not len(vectors):
        return Candidates.of([])
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    total = np.zeros(len(starts))
    measure = partial(distances, query.metric, vectors.chunks[0])
    for away in map_in_threads(measure, query.vectors, os.cpu_count() or 1):
        if vectors.valid is not None:
            away = np.where(vectors.valid, away, np.float32(np.nan))
        total += np.fmin.reduceat(away, starts)
    exact = total.astype(np.float32)
    order = np.argsort(exact, kind="stable")
    order = order[query.bounds.met(exact[order])]
    return Candidates.of([(addresses[rows[starts]][order], exact[order])])
