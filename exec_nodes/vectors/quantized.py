"""The codes of vectors that don't change any more."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from exec_nodes.base.tasks import in_background
from exec_nodes.vectors.column import VectorColumn
from exec_nodes.vectors.metrics import Metric
from memwal_native import VectorCodes

# What one search reads; other work is done once so many were made as pay for it.
BYTES_PER_SEARCH = 4 * 1024 * 1024
# Putting near vectors together takes so many times as long as reading them.
_ARRANGING = 8
# With fewer, a search spends most of its time elsewhere.
_FEWEST_ARRANGED = 50_000
# Of a row, beside a byte an element: what it is scaled by, its square and error, and its place.
_ROW_BYTES = 16


class QuantizedVectors:
    """Made once for each metric, and put into cells once searches have paid for it, whether that
    turns out to be of use or not. Safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[Metric, VectorCodes] = {}
        self._searches: Counter[Metric] = Counter()
        self._arranged: set[Metric] = set()
        self._lock = Lock()

    def __call__(self, vectors: VectorColumn, metric: Metric) -> VectorCodes:
        """Those of `held`, which is always the same."""
        with self._lock:
            codes = self._known.get(metric)
            if codes is None:
                codes = self._known[metric] = vectors.coded(None, metric)
                return codes
            self._searches[metric] += 1
            paid = self._searches[metric] * BYTES_PER_SEARCH >= _ARRANGING * vectors.nbytes
            arrange = paid and metric not in self._arranged and len(vectors) >= _FEWEST_ARRANGED
            if arrange:
                self._arranged.add(metric)
        if arrange:
            in_background(codes.arrange)
        return codes


def coded_bytes(vectors: VectorColumn) -> int:
    """About how many bytes the codes of a metric take."""
    dimension = vectors.chunks[0].shape[1] if vectors.chunks else 0
    return len(vectors) * (dimension + _ROW_BYTES)
