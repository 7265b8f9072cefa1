"""What each write and each query does before it touches a file: hashing, routing, pruning, and
reading conditions. No baseline: the bounds are what these may add to a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import numpy as np
import pyarrow as pa

from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Reach, Result
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import Workspace
from memwal_sql.sql.filter_text import conjuncts
from planner.model import RegionSources
from planner.predicates.condition import condition_of
from planner.predicates.expr import Compare, Literal, Operand
from planner.regions import factories
from planner.regions.check import validate
from planner.regions.hashing.murmur3 import bucket, murmur3
from planner.regions.pruning import prune
from planner.regions.text import spec_of

_BUCKETS = 16
_CONDITIONS = 100
_MOST_MS = {"hash": 20.0, "route": 20.0, "prune": 50.0, "read": 0.15 * _CONDITIONS}


def routing(work: Workspace) -> Iterator[Result]:
    """100,000 keys hashed and routed, 1,000 regions pruned, and conditions of lookups read."""
    count, regions = work.sizes.flush_rows, work.sizes.regions
    table = pa.table({"id": np.random.default_rng(0).integers(0, 10**9, count)})
    column = table["id"].combine_chunks()
    spec = spec_of(factories.bucket("id", _BUCKETS), 1)
    wide = validate(spec_of(factories.bucket("id", regions), 1), table.schema, ["id"])
    sources = [
        RegionSources(UUID(int=one), str(one), 1, {"id_bucket": one}, ()) for one in range(regions)
    ]
    numbers = iter(range(10**6, 10**9))  # no condition comes twice, as tests of regions are kept

    def pruned() -> int:
        equal = Compare(Operand("id"), "=", Literal(pa.int64(), next(numbers)))
        return len(prune([equal], sources, [wide], table.schema))

    (given,) = conjuncts("id = 5", table.schema, lambda filters, _: ["exact"] * len(filters)) or ()

    def read() -> None:
        for _ in range(_CONDITIONS):
            condition_of(given, table.schema)

    if pruned() != 1:
        raise WrongResultError("an equality leaves more or less than one bucket")
    works: dict[str, Callable[[], object]] = {
        "hash": lambda: bucket(murmur3(column), _BUCKETS),
        "route": lambda: spec.assign(table),
        "prune": pruned,
        "read": read,
    }
    names = {
        "hash": f"hashing {count:,} keys into buckets",
        "route": f"routing {count:,} rows to {_BUCKETS} regions",
        "prune": f"pruning {regions:,} regions by an equality",
        "read": f"reading {_CONDITIONS} conditions of lookups",
    }
    for name, taken in interleaved(works, work.sizes.rounds).items():
        reach = Reach(taken * 1e3, _MOST_MS[name], "at most", "ms")
        yield Result(names[name], taken * 1e3, "ms", reach=reach)
