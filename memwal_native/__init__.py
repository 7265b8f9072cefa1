"""The native library: mounts Python plans in DataFusion. Its source is `native/`."""

from memwal_native._native import (
    DATAFUSION_MAJOR,
    ArrowStream,
    MountedTable,
    Postings,
    Predicate,
    TokenMap,
    VectorCodes,
    compress,
    distances,
    find_marked,
    flag_live,
    mark,
    recall,
    remember,
    superseded,
    top_k,
)

__all__ = [
    "DATAFUSION_MAJOR",
    "ArrowStream",
    "MountedTable",
    "Postings",
    "Predicate",
    "TokenMap",
    "VectorCodes",
    "compress",
    "distances",
    "find_marked",
    "flag_live",
    "mark",
    "recall",
    "remember",
    "superseded",
    "top_k",
]
