"""The bloom filter of a generation's keys beside an independent one of the same promise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pybloom_live

from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Reach, Result, faster_than
from benchmarks.support.timing import seconds
from benchmarks.support.workspace import Workspace
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.hashing import hash_columns

_NAME = "pybloom-live at 1%"
_PROMISE = 0.01
_ABSENT = 20_000  # enough for some false hits


def bloom_filters(work: Workspace) -> Iterator[Result]:
    """A filter of as many keys as a generation of the shared tables: built, asked, and its size."""
    count = work.sizes.source_rows
    keys = np.arange(count + _ABSENT, dtype=np.int64)
    present, absent = pa.array(keys[:count]), pa.array(keys[count:])
    reference = pybloom_live.BloomFilter(count, _PROMISE)

    def theirs() -> None:
        for key in keys[:count].tolist():
            reference.add(key, skip_check=True)

    build = faster_than(
        f"building a bloom filter of {count:,} keys",
        seconds(lambda: BloomFilter.build(hash_columns([present]))),
        seconds(theirs),
        _NAME,
        10.0,
    )
    ours = BloomFilter.build(hash_columns([present]))
    if not ours.check(hash_columns([present])).all():
        raise WrongResultError("a bloom filter does not know a key of its own")
    yield build

    size, other = len(ours.data) / 1e6, len(reference.bitarray.tobytes()) / 1e6
    reach = Reach(size / other, 1.3, "at most")
    yield Result("the space of that filter", size, "MB", other, _NAME, reach)

    hits = 100 * float(ours.check(hash_columns([absent])).mean())
    others = 100 * sum(key in reference for key in keys[count:].tolist()) / _ABSENT
    bound = Reach(hits, 100 * _PROMISE, "at most", "%")
    yield Result("false hits of keys that are not in it", hits, "%", others, _NAME, bound)
