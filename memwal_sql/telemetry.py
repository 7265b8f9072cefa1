"""Metrics by OpenTelemetry's API, which is the extra `otel`; without it nothing is counted.

A program that sets a meter provider gets them; what it measures costs, and where it sends them, is
its own choice. Names, units and attributes are in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from time import perf_counter
from typing import Any, Protocol

from exec_nodes.resident.store import STORE
from memwal_sql.version import __version__

_meter: Any = None
try:
    from opentelemetry.metrics import Meter, Observation, get_meter

    # An API that is older than the extra asks for may have come with another package.
    if "explicit_bucket_boundaries_advisory" in signature(Meter.create_histogram).parameters:
        _meter = get_meter("memwal_sql", __version__)
except ImportError:
    pass

Attributes = Mapping[str, str]
NONE: Attributes = {}


class Instrument(Protocol):
    """Takes a number: an addition, a duration or a level."""

    def __call__(self, amount: float, attributes: Attributes = NONE) -> None: ...


def _nothing(amount: float, attributes: Attributes = NONE) -> None:
    """Without the extra."""


def _made(kind: str, method: str, name: str, unit: str, text: str, **options: Any) -> Instrument:
    """The method of a new instrument that takes a number."""
    if _meter is None:
        return _nothing
    instrument = getattr(_meter, f"create_{kind}")(name, unit=unit, description=text, **options)
    taken: Instrument = getattr(instrument, method)
    return taken


_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
_counter = partial(_made, "counter", "add")
_level = partial(_made, "up_down_counter", "add")
_gauge = partial(_made, "gauge", "set")
_seconds = partial(_made, "histogram", "record", explicit_bucket_boundaries_advisory=_BUCKETS)

WRITTEN_ROWS = _counter("memwal.written.rows", "{row}", "Rows and tombstones in WAL entries")
WAL_BYTES = _counter("memwal.wal.size", "By", "Bytes of WAL entries")
WAL_SECONDS = _seconds("memwal.wal.append.duration", "s", "Time of a WAL entry's append")
UNFLUSHED_BYTES = _level("memwal.unflushed.size", "By", "MemTables of this process's writers")
BACK_PRESSURE_SECONDS = _seconds("memwal.back_pressure.duration", "s", "Time that a write waited")
FENCES = _counter("memwal.fences", "{fence}", "Regions taken from writers of this process")
CONFLICTS = _counter("memwal.conflicts", "{conflict}", "Writes that ended with a ConflictError")
FLUSHED_ROWS = _counter("memwal.flushed.rows", "{row}", "Rows of flushed generations")
FLUSH_SECONDS = _seconds("memwal.flush.duration", "s", "Time of writing a generation")
MERGED_ROWS = _counter("memwal.merged.rows", "{row}", "Rows and tombstones of merged generations")
MERGED_GENERATIONS = _counter("memwal.merged.generations", "{generation}", "Merged generations")
WAITING_GENERATIONS = _gauge("memwal.waiting.generations", "{generation}", "Generations to merge")
JOB_SECONDS = _seconds("memwal.job.duration", "s", "Time of a job of the loop")
REQUESTS = _counter("memwal.store.requests", "{request}", "Requests to an object store")


if _meter is not None:
    _meter.create_observable_gauge(
        "memwal.resident.size",
        [lambda _: [Observation(STORE.nbytes)]],
        unit="By",
        description="Parts of tables kept in memory",
    )


@contextmanager
def timed(instrument: Instrument, attributes: Attributes = NONE) -> Iterator[None]:
    """Record the seconds of the context, also if it ends with an error."""
    start = perf_counter()
    try:
        yield
    finally:
        instrument(perf_counter() - start, attributes)
