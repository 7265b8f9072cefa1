"""Every benchmark, in the order of the goals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from benchmarks.calls import calls
from benchmarks.during_merge import during_merge
from benchmarks.full_text_search import full_text_search, indexed_upserts
from benchmarks.index_gap import index_gap
from benchmarks.indexed_flush import indexed_flush
from benchmarks.lookups import get_many, get_one, sql_lookup
from benchmarks.memory import streaming_memory
from benchmarks.merging import merging
from benchmarks.mixed import mixed, replaced_scan
from benchmarks.opening import opening
from benchmarks.scans import filtered_scan, first_scan, full_scan, generations_scan
from benchmarks.support.result import Result
from benchmarks.support.workspace import Workspace
from benchmarks.vector_search import vector_search
from benchmarks.writes import durable_upserts, sustained_upserts

Benchmark = Callable[[Workspace], Iterator[Result]]

BENCHMARKS: Mapping[str, Benchmark] = {
    "full-scan": full_scan,
    "first-scan": first_scan,
    "filtered-scan": filtered_scan,
    "get-one": get_one,
    "get-many": get_many,
    "sql-lookup": sql_lookup,
    "durable-upserts": durable_upserts,
    "sustained-upserts": sustained_upserts,
    "mixed": mixed,
    "replaced-scan": replaced_scan,
    "generations-scan": generations_scan,
    "streaming-memory": streaming_memory,
    "opening": opening,
    "merging": merging,
    "index-gap": index_gap,
    "during-merge": during_merge,
    "full-text-search": full_text_search,
    "indexed-upserts": indexed_upserts,
    "indexed-flush": indexed_flush,
    "vector-search": vector_search,
    "calls": calls,
}
