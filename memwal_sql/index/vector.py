"""What `create_index` is told of a vector index, checked before Lance trains anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_sql.errors import InvalidCallError

VectorKind = Literal[
    "IVF_FLAT",
    "IVF_PQ",
    "IVF_SQ",
    "IVF_RQ",
    "IVF_HNSW_FLAT",
    "IVF_HNSW_PQ",
    "IVF_HNSW_SQ",
]
VECTOR_KINDS = get_args(VectorKind)
METRICS = ("l2", "cosine", "dot", "hamming")


class IvfParameters(TypedDict, total=False):
    """What every vector index takes. None is as good as left out, here and below."""

    metric: Literal["l2", "cosine", "dot", "hamming", "euclidean"] | None
    num_partitions: int | None
    target_partition_size: int | None
    sample_rate: int | None
    ivf_centroids: npt.ArrayLike | None


class RqParameters(TypedDict, total=False):
    """What `IVF_RQ` takes, too."""

    num_bits: int | None


class PqParameters(RqParameters, total=False):
    """What `IVF_PQ` and `IVF_HNSW_PQ` take, too."""

    num_sub_vectors: int | None
    pq_codebook: npt.ArrayLike | None


class HnswParameters(TypedDict, total=False):
    """What the kinds of `HNSW` take, too."""

    m: int | None
    ef_construction: int | None
    max_level: int | None


class VectorParameters(IvfParameters, PqParameters, HnswParameters, total=False):
    """The parameters of all vector indexes; which of them a kind takes, is checked."""


_LEAST = {
    "num_partitions": 1,
    "target_partition_size": 1,
    "sample_rate": 1,
    "num_sub_vectors": 1,
    "m": 4,
    "ef_construction": 1,
    "max_level": 1,
}
_PQ_BITS, _RQ_BITS = (4, 8), tuple(range(1, 10))
_FILL = (
    "flush rows and merge them first (writer.flush(), then table.merge(); where their writer is "
    "closed, upsert one of them again, as a writer flushes what the log of its region has), or "
    "load rows into the base table"
)


def vector_arguments(
    dataset: Any, field: pa.Field, kind: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of Lance's `create_index` for a kind of `VECTOR_KINDS`.

    `num_sub_vectors` is a sixteenth of the dimension where that divides it, else an eighth, else
    1. Raises InvalidCallError when they do not fit each other or the column, or when the base
    table has too few vectors to train on.
    """
    dimension = _dimension(field)
    _check_names(kind, parameters)
    found = {name: value for name, value in parameters.items() if value is not None}
    for name, least in _LEAST.items():
        value = found.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidCallError(f"{name}={value!r} must be a whole number, {least} or more")
    found["metric"] = _metric(field, kind, found.get("metric"))
    if "PQ" in kind:
        found["num_sub_vectors"] = _sub_vectors(dimension, found.get("num_sub_vectors"))
        found["num_bits"] = _bits(found.get("num_bits", 8), _PQ_BITS)
        if found["num_bits"] == 4 and found["num_sub_vectors"] % 2:
            raise InvalidCallError(
                f"num_sub_vectors={found['num_sub_vectors']} must be even with num_bits=4"
            )
    elif "num_bits" in found:
        _bits(found["num_bits"], _RQ_BITS)
    _check_model(found, dimension)
    _check_rows(dataset, field.name, kind, found)
    return found


def _dimension(field: pa.Field) -> int:
    kind = field.type
    if not pa.types.is_fixed_size_list(kind) or not (
        pa.types.is_floating(kind.value_type) or pa.types.is_uint8(kind.value_type)
    ):
        raise InvalidCallError(
            f"column {field.name!r} is {kind}; a vector index needs a fixed_size_list of float16, "
            "float32, float64 or uint8"
        )
    return int(kind.list_size)


def _check_names(kind: str, parameters: Mapping[str, Any]) -> None:
    known = [*IvfParameters.__annotations__]
    if "PQ" in kind:
        known += PqParameters.__annotations__
    if "RQ" in kind:
        known += RqParameters.__annotations__
    if "HNSW" in kind:
        known += HnswParameters.__annotations__
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise InvalidCallError(f"unknown parameters {unknown} of {kind}; it has {known}")
    if parameters.get("pq_codebook") is not None and parameters.get("ivf_centroids") is None:
        raise InvalidCallError("pq_codebook needs the ivf_centroids that it was trained with")


def _metric(field: pa.Field, kind: str, metric: Any) -> str:
    binary = pa.types.is_uint8(field.type.value_type)
    if binary and not kind.endswith("FLAT"):
        raise InvalidCallError(f"{kind} does not take uint8: use IVF_FLAT or IVF_HNSW_FLAT")
    if metric is None:
        return "hamming" if binary else "l2"
    wanted = metric.lower() if isinstance(metric, str) else metric
    if wanted == "euclidean":
        wanted = "l2"
    if wanted not in METRICS:
        raise InvalidCallError(f"metric={metric!r} must be one of {METRICS}")
    if binary != (wanted == "hamming"):
        raise InvalidCallError(
            f"metric={metric!r} does not fit {field.type}: hamming is for uint8, and uint8 has "
            "no other index"
        )
    return str(wanted)


def _sub_vectors(dimension: int, wanted: int | None) -> int:
    if wanted is None:
        return next((dimension // n for n in (16, 8) if dimension % n == 0), 1)
    if dimension % wanted:
        raise InvalidCallError(
            f"num_sub_vectors={wanted} must divide the vectors' dimension, {dimension}"
        )
    return wanted


def _bits(bits: Any, known: tuple[int, ...]) -> int:
    if isinstance(bits, bool) or bits not in known:
        raise InvalidCallError(f"num_bits={bits!r} must be one of {known}")
    return int(bits)


def _check_model(found: dict[str, Any], dimension: int) -> None:
    """Centroids and codebook that the caller brings, as arrays of the right shape."""
    if "ivf_centroids" in found:
        centroids = found["ivf_centroids"] = _array(found["ivf_centroids"], "ivf_centroids")
        if centroids.ndim != 2 or centroids.shape[1] != dimension or not len(centroids):
            raise InvalidCallError(
                f"ivf_centroids of the shape {centroids.shape} must be (partitions, {dimension})"
            )
        if found.setdefault("num_partitions", len(centroids)) != len(centroids):
            raise InvalidCallError(
                f"num_partitions={found['num_partitions']} does not fit "
                f"{len(centroids)} ivf_centroids"
            )
    if "pq_codebook" in found:
        codebook = found["pq_codebook"] = _array(found["pq_codebook"], "pq_codebook")
        parts = found["num_sub_vectors"]
        shape = (parts, 2 ** found["num_bits"], dimension // parts)
        if codebook.shape != shape:
            raise InvalidCallError(f"pq_codebook of the shape {codebook.shape} must be {shape}")


def _array(value: Any, name: str) -> np.ndarray[Any, Any]:
    if isinstance(value, pa.FixedSizeListArray):
        value = value.flatten().to_numpy(zero_copy_only=False).reshape(-1, value.type.list_size)
    array = np.asarray(value)
    if array.dtype.kind not in "fu" or not np.isfinite(array).all():
        raise InvalidCallError(f"{name} must be finite numbers, not {array.dtype}")
    return array


def _check_rows(dataset: Any, column: str, kind: str, found: Mapping[str, Any]) -> None:
    rows = dataset.count_rows(f"`{column}` IS NOT NULL")
    if not rows:
        raise InvalidCallError(
            f"no row of the base table has a vector in {column!r}, so there is nothing to train "
            f"{kind} on: {_FILL}"
        )
    needed = 2 ** found["num_bits"] if "PQ" in kind and "pq_codebook" not in found else 1
    if rows < needed:
        raise InvalidCallError(
            f"{rows} rows of the base table have a vector in {column!r}, and {kind} trains its "
            f"codebook on {needed} at least: {_FILL}, or use IVF_FLAT"
        )
    partitions = found.get("num_partitions", 1)
    if "ivf_centroids" not in found and partitions > rows:
        raise InvalidCallError(
            f"num_partitions={partitions} is more than the {rows} vectors of the base table: "
            f"take fewer, or {_FILL}"
        )
