"""The native library: mounts Python plans in DataFusion. Its source is `native/`."""

import atexit

from memwal_native._native import (
    DATAFUSION_MAJOR,
    ArrowStream,
    KeyVersions,
    LiveRows,
    MountedTable,
    Postings,
    Predicate,
    ResidentStream,
    SessionRule,
    StreamCounts,
    TokenList,
    TokenMap,
    VectorCodes,
    compress,
    distances,
    find_marked,
    flag_live,
    mark,
    murmur3,
    murmur3_bytes,
    places_of,
    quick_tables,
    recall,
    remember,
    shut_down,
    siphash13,
    siphash13_bytes,
    superseded,
    top_k,
    union,
)

# A query that runs in another thread ends with an error at the next batch; this is the most that
# the exit of the interpreter waits for it.
_PATIENCE_SECONDS = 5.0
atexit.register(shut_down, _PATIENCE_SECONDS)

__all__ = [
    "DATAFUSION_MAJOR",
    "ArrowStream",
    "KeyVersions",
    "LiveRows",
    "MountedTable",
    "Postings",
    "Predicate",
    "ResidentStream",
    "SessionRule",
    "StreamCounts",
    "TokenList",
    "TokenMap",
    "VectorCodes",
    "compress",
    "distances",
    "find_marked",
    "flag_live",
    "mark",
    "murmur3",
    "murmur3_bytes",
    "places_of",
    "quick_tables",
    "recall",
    "remember",
    "shut_down",
    "siphash13",
    "siphash13_bytes",
    "superseded",
    "top_k",
    "union",
]
