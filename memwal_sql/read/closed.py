"""Closes a snapshot over transactions: each is in all of its regions or in none (protocol rule
T12).

Regions are looked at one after the other. A transaction that is committed meanwhile may be in the
tail of one and behind the end of another. Then the tail is cut before the intent, and again until
nothing changes. What is cut off was acknowledged after the query began: the other region was looked
at before its intent landed, that was before the record, and rows behind an intent come after the
record (rule T6).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from memwal_sql.errors import ContentionError
from memwal_sql.read.region import RegionReader, Unflushed
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.tail import Tail
from planner.model import Snapshot

Place = tuple[UUID, UUID]
"""The incarnation of a table, and a region."""
_ATTEMPTS = 20


class OlderReadError(Exception):
    """Another thread has found a newer state of the table: look again."""


@dataclass(frozen=True, slots=True)
class RegionRead:
    """A region, as a look at a table found it."""

    reader: RegionReader
    unflushed: Unflushed


@dataclass(frozen=True, slots=True)
class TableRead:
    """The regions of a table as one read found them, over a base version.

    Attributes:
        pruned: how many others the filters ruled out.
        open_of: the table's incarnation, if the table may have got regions since this read listed
            them; None if the read was about regions that exist.
        listed: the regions that existed when they were looked for, those ruled out too.
        lost: the number of buffered writers that had failed when it began.
        voided: how often questions had become void when it began.
    """

    base: BaseTable
    regions: Sequence[RegionRead]
    pruned: int = 0
    open_of: UUID | None = None
    listed: Sequence[RegionReader] = ()
    lost: int = 0
    voided: int = 0


@dataclass(frozen=True, slots=True)
class ClosedRead:
    """A closed read of one table, and the snapshot that was made of it."""

    read: TableRead
    snapshot: Snapshot


def read_closed(read: Callable[[], Sequence[TableRead]]) -> Sequence[TableRead]:
    """What `read` returns, which is called until its regions can be closed, with tails that are cut
    where that is needed.

    A transaction that has written a region that the read of an open table lacks has made it
    meanwhile. Raises ContentionError where it does not come about.
    """
    absent: set[Place] = set()
    for _ in range(_ATTEMPTS):
        tables = read()
        reads: list[RegionRead] = []
        is_open = jumped = marked = False
        for table in tables:
            is_open |= table.open_of is not None
            for region in table.regions:
                jumped |= region.unflushed.jumped
                marked |= region.unflushed.tail.marks != ()
                reads += (region,)
        if jumped and (is_open or len(reads) > 1):
            continue
        if not marked:
            return tables
        tails = {region.reader.place: region.unflushed.tail for region in reads}
        strangers = _strangers(tails, {table.open_of for table in tables})
        strangers -= {reader.place for table in tables for reader in table.listed}
        if strangers <= absent and (cut := closed(tails)) is not None:
            return [_with(table, cut) for table in tables]
        absent |= strangers  # those that another look does not find were dropped
    raise ContentionError(
        f"transactions were flushed {_ATTEMPTS} times while the regions of a query were looked at: "
        "run it again"
    )


def _with(table: TableRead, tails: Mapping[Place, Tail]) -> TableRead:
    regions = [
        RegionRead(read.reader, replace(read.unflushed, tail=tails[read.reader.place]))
        for read in table.regions
    ]
    return replace(table, regions=regions)


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


def _strangers(tails: Mapping[Place, Tail], whole: Container[UUID | None]) -> set[Place]:
    """The regions of whole tables that transactions have written and that the look did not find."""
    parts = (part for tail in tails.values() for mark in tail.marks for part in mark.parts)
    return {part.place for part in parts if part.incarnation in whole} - tails.keys()
