"""The parameters of a vector index, checked before Lance trains anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from memwal_sql.errors import InvalidCallError
from memwal_sql.index.kinds import (
    HnswParameters,
    IvfParameters,
    PqParameters,
    RqParameters,
)

METRICS = ("l2", "cosine", "dot", "hamming")
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
    set_parameters = {name: value for name, value in parameters.items() if value is not None}
    for name, least in _LEAST.items():
        value = set_parameters.get(name, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidCallError(f"{name}={value!r} must be a whole number, {least} or more")
    set_parameters["metric"] = _metric(field, kind, set_parameters.get("metric"))
    if "PQ" in kind:
        set_parameters["num_sub_vectors"] = _sub_vectors(
            dimension, set_parameters.get("num_sub_vectors")
        )
        set_parameters["num_bits"] = _bits(set_parameters.get("num_bits", 8), _PQ_BITS)
        if set_parameters["num_bits"] == 4 and set_parameters["num_sub_vectors"] % 2:
            raise InvalidCallError(
                f"num_sub_vectors={set_parameters['num_sub_vectors']} must be even with num_bits=4"
            )
    elif "num_bits" in set_parameters:
        _bits(set_parameters["num_bits"], _RQ_BITS)
    _check_model(set_parameters, dimension)
    _check_rows(dataset, field.name, kind, set_parameters)
    return set_parameters


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
    names = [*IvfParameters.__annotations__]
    if "PQ" in kind:
        names += PqParameters.__annotations__
    if "RQ" in kind:
        names += RqParameters.__annotations__
    if "HNSW" in kind:
        names += HnswParameters.__annotations__
    unknown = sorted(set(parameters) - set(names))
    if unknown:
        raise InvalidCallError(f"unknown parameters {unknown} of {kind}; it has {names}")
    if parameters.get("pq_codebook") is not None and parameters.get("ivf_centroids") is None:
        raise InvalidCallError("pq_codebook needs the ivf_centroids that it was trained with")


def _metric(field: pa.Field, kind: str, metric: Any) -> str:
    binary = pa.types.is_uint8(field.type.value_type)
    if binary and not kind.endswith("FLAT"):
        raise InvalidCallError(f"{kind} does not take uint8: use IVF_FLAT or IVF_HNSW_FLAT")
    if metric is None:
        return "hamming" if binary else "l2"
    name = metric.lower() if isinstance(metric, str) else metric
    if name == "euclidean":
        name = "l2"
    if name not in METRICS:
        raise InvalidCallError(f"metric={metric!r} must be one of {METRICS}")
    if binary != (name == "hamming"):
        raise InvalidCallError(
            f"metric={metric!r} does not fit {field.type}: hamming is for uint8, and uint8 has "
            "no other index"
        )
    return str(name)


def _sub_vectors(dimension: int, number: int | None) -> int:
    if number is None:
        return next((dimension // n for n in (16, 8) if dimension % n == 0), 1)
    if dimension % number:
        raise InvalidCallError(
            f"num_sub_vectors={number} must divide the vectors' dimension, {dimension}"
        )
    return number


def _bits(bits: Any, widths: tuple[int, ...]) -> int:
    if isinstance(bits, bool) or bits not in widths:
        raise InvalidCallError(f"num_bits={bits!r} must be one of {widths}")
    return int(bits)


def _check_model(model: dict[str, Any], dimension: int) -> None:
    """Centroids and codebook that the caller brings, as arrays of the right shape."""
    if "ivf_centroids" in model:
        centroids = model["ivf_centroids"] = _array(model["ivf_centroids"], "ivf_centroids")
        if centroids.ndim != 2 or centroids.shape[1] != dimension or not len(centroids):
            raise InvalidCallError(
                f"ivf_centroids of the shape {centroids.shape} must be (partitions, {dimension})"
            )
        if model.setdefault("num_partitions", len(centroids)) != len(centroids):
            raise InvalidCallError(
                f"num_partitions={model['num_partitions']} does not fit "
                f"{len(centroids)} ivf_centroids"
            )
    if "pq_codebook" in model:
        codebook = model["pq_codebook"] = _array(model["pq_codebook"], "pq_codebook")
        parts = model["num_sub_vectors"]
        shape = (parts, 2 ** model["num_bits"], dimension // parts)
        if codebook.shape != shape:
            raise InvalidCallError(f"pq_codebook of the shape {codebook.shape} must be {shape}")


def _array(value: Any, name: str) -> np.ndarray[Any, Any]:
    if isinstance(value, pa.FixedSizeListArray):
        value = value.flatten().to_numpy(zero_copy_only=False).reshape(-1, value.type.list_size)
    array = np.asarray(value)
    if array.dtype.kind not in "fu" or not np.isfinite(array).all():
        raise InvalidCallError(f"{name} must be finite numbers, not {array.dtype}")
    return array


def _check_rows(dataset: Any, column: str, kind: str, model: Mapping[str, Any]) -> None:
    rows = dataset.count_rows(f"`{column}` IS NOT NULL")
    if not rows:
        raise InvalidCallError(
            f"no row of the base table has a vector in {column!r}, so there is nothing to train "
            f"{kind} on: {_FILL}"
        )
    needed = 2 ** model["num_bits"] if "PQ" in kind and "pq_codebook" not in model else 1
    if rows < needed:
        raise InvalidCallError(
            f"{rows} rows of the base table have a vector in {column!r}, and {kind} trains its "
            f"codebook on {needed} at least: {_FILL}, or use IVF_FLAT"
        )
    partitions = model.get("num_partitions", 1)
    if "ivf_centroids" not in model and partitions > rows:
        raise InvalidCallError(
            f"num_partitions={partitions} is more than the {rows} vectors of the base table: "
            f"take fewer, or {_FILL}"
        )
