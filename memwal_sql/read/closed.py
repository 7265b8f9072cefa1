"""Closes a snapshot over transactions: each is in all of its regions or in none (protocol rule
T12).

Regions are looked at one after the other. A transaction that is committed meanwhile may be in the
tail of one and behind the end of another. Then the tail is cut before the intent, and again until
nothing changes. What is cut off was acknowledged after the query began: the other region was looked
at before its intent landed, that was before the record, and rows behind an intent come after the
record (rule T6).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from memwal_sql.errors import ContentionError
from memwal_sql.read.region import RegionReader, Unflushed
from memwal_sql.state.tail import Tail

Place = tuple[UUID, UUID]
"""The incarnation of a table, and a region."""
T = TypeVar("T")
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class RegionRead:
    """A region, as a look at a table found it."""

    reader: RegionReader
    unflushed: Unflushed


def read_closed(
    read: Callable[[], T],
    regions: Callable[[T], Iterable[RegionRead]],
    whole: Container[UUID] = (),
) -> tuple[T, dict[Place, Tail]]:
    """What `read` returns, which is called until its `regions` can be closed, and the tails where
    it may have cut them.

    `whole` are the incarnations of tables of which every region is in scope: a transaction that has
    written another one has made it meanwhile. Raises ContentionError where it does not come about.
    """
    absent: set[Place] = set()
    for _ in range(_ATTEMPTS):
        result = read()
        reads = list(regions(result))
        jumped = [region for region in reads if region.unflushed.jumped]
        if jumped and len(reads) > 1:
            continue
        if not [region for region in reads if region.unflushed.tail.marks]:
            return result, {}
        tails = {region.reader.place: region.unflushed.tail for region in reads}
        strangers = _strangers(tails, whole)
        if strangers <= absent and (cut := closed(tails)) is not None:
            return result, cut
        absent |= strangers  # those that another look does not find were dropped
    raise ContentionError(
        f"transactions were flushed {_ATTEMPTS} times while the regions of a query were looked at: "
        "run it again"
    )


def closed(tails: Mapping[Place, Tail]) -> dict[Place, Tail] | None:
    """The tails of a snapshot, cut where that is needed; None to look at all regions again.

    A fence is never cut off, as a native writer may have written behind it, which settles nothing.
    """
    result = dict(tails)
    while True:
        cut = False
        for place, tail in result.items():
            for mark in tail.marks:
                missing = (
                    part.place in tails and part.position > result[part.place].end
                    for part in mark.parts
                )
                if any(missing):
                    if tail.fence > mark.position:
                        return None
                    result[place] = tail.before(mark)
                    cut = True
                    break
        if not cut:
            return result


def _strangers(tails: Mapping[Place, Tail], whole: Container[UUID]) -> set[Place]:
    """The regions of whole tables that transactions have written and that the look did not find."""
    parts = (part for tail in tails.values() for mark in tail.marks for part in mark.parts)
    return {part.place for part in parts if part.incarnation in whole} - tails.keys()
