"""Places in the change feed: plain numbers that survive JSON and a restart.

A place in a region is a WAL position together with a generation: generations that were published
whole, past the WAL (protocol rule 24), come after the entries of the generations before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memwal_sql.errors import InvalidCallError

Place = int | Sequence[int]
"""A position, or a position and a generation, as in `change_offsets` and the feed's columns."""

Offsets = Place | Mapping[str, Place]
"""One place for one region, or places by region id or name."""


@dataclass(frozen=True, slots=True)
class ChangeOffset:
    """Everything up to WAL position `position` and generation `generation` was read.

    `generation` is None if only a position is known.
    """

    position: int
    generation: int | None


BEGINNING = ChangeOffset(0, 0)


def parse_place(place: Place) -> ChangeOffset:
    """The offset of a position, or of a pair of position and generation.

    Raises InvalidCallError naming the value.
    """
    numbers: list[Any] = list(place) if isinstance(place, list | tuple) else [place]
    plain = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not plain or len(numbers) not in (1, 2) or min(numbers) < 0:
        raise InvalidCallError(
            f"{place!r} is not a place in the change feed: give a WAL position (0: the beginning), "
            "or [position, generation] as in the feed's columns"
        )
    return ChangeOffset(numbers[0], numbers[1] if len(numbers) == 2 else None)
