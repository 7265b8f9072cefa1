"""What an airport's message feed would have said: every flight as a few events in time order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from demo.flights import ARRIVAL_COLUMNS, DEPARTURE_COLUMNS, PRIMARY_KEY

HOUR = 60
DAY = 24 * HOUR

CLIMB_AND_TAXI = 30
MILES_A_MINUTE = 7


class Kind(IntEnum):
    """What happened to a flight, in the order in which it happens."""

    SCHEDULED = 0
    DEPARTED = 1
    ARRIVED = 2
    CANCELLED = 3


@dataclass(frozen=True)
class EventBatch:
    """The events of one stretch of time, ready to be written: upserts, then deletes.

    A cancelled flight has no later event, so deletes may go last. A flight that departs and
    arrives in the same stretch is upserted twice, in that order.
    """

    day: date
    upserts: pa.Table
    deletes: pa.Table
    counts: tuple[int, int, int, int]
    """Events by `Kind`."""

    @cached_property
    def events(self) -> int:
        """How many events the batch holds."""
        return sum(self.counts)


@dataclass(frozen=True)
class Events:
    """All events of `flights`, sorted by time (UTC minutes since 1970), flight by flight.

    `flight[i]` is the row of `flights` that event `i` is about. A flight is announced 24 hours
    before it is scheduled. It departs when the source says so, arrives after its air time and half
    an hour (when the air time is unknown, it is estimated from the distance), and is cancelled at
    its scheduled time.
    """

    flights: pa.Table
    flight: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int8]
    minute: npt.NDArray[np.int64]

    @classmethod
    def of(cls, flights: pa.Table) -> Events:
        """The events of `flights`, a table as `demo.flights.SCHEMA`."""
        scheduled = flights["scheduled_at"].cast(pa.int64()).to_numpy() // 60_000_000
        departed = scheduled + _minutes(flights["dep_delay"])
        in_air = np.where(
            flights["air_time"].is_valid().to_numpy(),
            _minutes(flights["air_time"]),
            _minutes(flights["distance"]) // MILES_A_MINUTE,
        )
        has_departed = flights["dep_time"].is_valid().to_numpy()
        has_arrived = flights["arr_time"].is_valid().to_numpy()
        parts = (
            (Kind.SCHEDULED, scheduled - DAY, np.ones(len(scheduled), dtype=bool)),
            (Kind.DEPARTED, departed, has_departed),
            (Kind.ARRIVED, departed + in_air + CLIMB_AND_TAXI, has_arrived),
            (Kind.CANCELLED, scheduled, ~has_departed),
        )
        rows = [np.flatnonzero(happens) for _, _, happens in parts]
        flight = np.concatenate(rows)
        minute = np.concatenate([at[of] for (_, at, _), of in zip(parts, rows, strict=True)])
        kind = np.repeat(
            np.array([kind for kind, _, _ in parts], dtype=np.int8), [len(of) for of in rows]
        )
        order = np.lexsort((flight, minute))
        return cls(flights, flight[order], kind[order], minute[order])

    def __len__(self) -> int:
        return len(self.flight)

    def batches(self, hours: int = 24) -> Iterator[EventBatch]:
        """The events in time order, a batch for every `hours` hours in which there are any."""
        stretch = self.minute // (hours * HOUR)
        ends = [*(np.flatnonzero(np.diff(stretch)) + 1).tolist(), len(self)]
        return (self._batch(slice(start, end)) for start, end in pairwise([0, *ends]) if end)

    def _batch(self, part: slice) -> EventBatch:
        flight, kind = self.flight[part], self.kind[part]
        cancelled = kind == Kind.CANCELLED
        keys = self.flights.select(list(PRIMARY_KEY))
        counts = np.bincount(kind, minlength=len(Kind)).tolist()
        return EventBatch(
            day=(np.datetime64(0, "D") + self.minute[part.start] // DAY).item(),
            upserts=self._rows(flight[~cancelled], kind[~cancelled]),
            deletes=keys.take(pa.array(flight[cancelled])),
            counts=(counts[0], counts[1], counts[2], counts[3]),
        )

    def _rows(self, flight: npt.NDArray[np.int64], kind: npt.NDArray[np.int8]) -> pa.Table:
        """The flights as they are known after each event: what comes later is null."""
        rows = self.flights.take(pa.array(flight))
        for known_from, names in (
            (Kind.DEPARTED, DEPARTURE_COLUMNS),
            (Kind.ARRIVED, ARRIVAL_COLUMNS),
        ):
            is_known = pa.array(kind >= known_from)
            for name in names:
                field = rows.schema.field(name)
                column = pc.if_else(is_known, rows[name], pa.scalar(None, field.type))
                rows = rows.set_column(rows.schema.get_field_index(name), field, column)
        return rows


def _minutes(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    whole = pc.fill_null(column, 0).cast(pa.int64())
    return np.asarray(whole.to_numpy(), dtype=np.int64)
