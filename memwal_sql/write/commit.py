"""Commits rows that rest on what was read: all, if nobody wrote their keys since, or none.

Statements and transactions end here. What they write is a list of shares, one or more a region,
which are compared with what was written after their cuts and then enqueued, while nobody else
enqueues rows. Rows of several regions are one transaction (`write/coordinator`), if the tables take
transactions and the rows of each region fit into a MemTable. Regions that were only read take part
in it where they have to stay as they were, so that nobody writes there between the comparison and
the record. Other processes have to claim a region to write it: of two that read what the other
writes, one finds a region fenced when it reads it, or can't append.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.lazy import lazy_property
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.keys import key_values
from memwal_sql.errors import ConflictError, UnsupportedError
from memwal_sql.storage.records.transactions import MOST_PARTS
from memwal_sql.write.conditional.recent import Cut
from memwal_sql.write.conditional.resolve import SHOWN_KEYS, key_names
from memwal_sql.write.coordinator import AtomicWrite, Description, Participant, takes_none
from memwal_sql.write.generations import PendingWrite
from memwal_sql.write.region_writer import RegionWriter

Entries = list[tuple[RegionWriter, list[PendingWrite]]]


class Together(Thresholds):
    """How many regions are written as one transaction."""

    most_regions = MOST_PARTS


@dataclass(frozen=True)
class Share(Participant):
    """Rows for one region, and what they rest on. The rows are in the MemTables' schema, at most
    one a key, or none where the region was only read.

    Attributes:
        cut: a cut from before the reads; None if the rows rest on no reads.
        stays: whether nothing at all may have been written to the region after the cut.
    """

    cut: Cut | None = None
    stays: bool = False

    @lazy_property
    def keys(self) -> list[Hashable]:
        """The key values of its rows."""
        return key_values(self.rows.select(self.writer.recent.primary_key).columns)

    @lazy_property
    def key_set(self) -> frozenset[Hashable]:
        """These as a set, to be made before anybody waits for the comparison."""
        return frozenset(self.keys) if self.cut is not None else frozenset()

    def moved_to(self, writer: RegionWriter, cut: Cut) -> Share:
        """The same for the writer that has the region now, and its cut."""
        moved = replace(self, writer=writer, cut=cut)
        moved.__dict__["key_set"] = self.key_set
        return moved

    def divided(self, lost: frozenset[Hashable]) -> tuple[pa.RecordBatch, Share]:
        """The rows whose keys are lost, and the share with the others."""
        if not self.key_set & lost:
            return self.rows.slice(0, 0), self
        is_lost = np.fromiter((key in lost for key in self.keys), np.bool_, len(self.keys))
        rest = replace(self, rows=self.rows.filter(pa.array(~is_lost)))
        rest.__dict__["key_set"] = self.key_set - lost
        return self.rows.filter(pa.array(is_lost)), rest


Lost = list[tuple[Share, frozenset[Hashable]]]


def commit(
    shares: Sequence[Share], description: Description, *, atomic: bool = False
) -> Entries | AtomicWrite:
    """Enqueue the rows, to be landed. Raises ConflictError where others came first, and as
    `enqueued`; nothing is enqueued then."""
    for share in shares:
        share.key_set  # noqa: B018 (before others wait)
    with ExitStack() as locks:
        for share in sorted(shares, key=lambda share: share.order):
            locks.enter_context(share.writer.enqueue_lock)
        if lost := lost_keys(shares):
            raise conflict_of(lost)
        return enqueued(shares, description, atomic=atomic)


# The caller holds the `enqueue_lock` of all writers in the functions below.


def lost_keys(shares: Sequence[Share]) -> Lost:
    """The shares whose keys others have written since the cut, with these keys; and those whose
    region was to stay and was written, without any. Raises the error that stopped a writer."""
    lost: Lost = []
    for share in shares:
        share.writer.check_usable()
        if share.cut is None:
            continue
        keys = frozenset(share.writer.recent.written(share.cut, share.key_set))
        if keys or (share.stays and share.writer.recent.moved(share.cut)):
            lost.append((share, keys))
    return lost


def enqueued(
    shares: Sequence[Share], description: Description, *, atomic: bool = False
) -> Entries | AtomicWrite:
    """The rows of all shares in their places, to be landed: as one transaction, or one by one. A
    transaction with a buffered writer has landed when this returns, because others must not enqueue
    before that. Raises as `transaction_of`."""
    transaction = transaction_of(shares, description, atomic=atomic)
    if transaction is not None:
        return transaction
    return [
        (share.writer, share.writer.enqueue(share.rows, checked=True, staged=description.staged))
        for share in _by_region(shares)
        if share.rows.num_rows
    ]


def transaction_of(
    shares: Sequence[Share], description: Description, *, atomic: bool = False
) -> AtomicWrite | None:
    """The transaction that writes all shares; None where one entry suffices, or where they can't be
    one transaction. Raises UnsupportedError for the latter if they must be `atomic`, or have an
    actor, and thus a record."""
    parts = _by_region(shares)
    has_record = atomic or description.actor is not None
    refuses = has_record or description.must_be_atomic
    fit = all(part.writer.fits(part.rows) for part in parts)
    is_one = len(parts) == 1 and not has_record and (fit or not refuses)
    if is_one or not any(part.rows.num_rows for part in parts):
        return None
    for part in parts:
        if not part.context.takes_transactions:
            if not refuses:
                return None
            raise takes_none(part.context)
    if len(parts) > Together.most_regions or not fit:
        if not refuses:
            return None
        actor = description.actor
        record = "" if actor is None else f", and so for a record of its actor {actor!r}"
        raise UnsupportedError(
            f"these rows of {len(parts)} regions are too large for one transaction{record}: "
            f"nothing was written. {Together.most_regions} regions are the most, and in each "
            "the rows of one MemTable: write fewer at once, or with a writer of larger ones "
            "(memtable_rows, memtable_bytes)"
        )
    transaction = AtomicWrite(parts, description)
    if not all(part.writer.durable for part in parts):  # while others can't enqueue
        transaction.land()
    return transaction


def _by_region(shares: Sequence[Share]) -> list[Share]:
    """One share a region."""
    of_region: dict[RegionWriter, list[Share]] = {}
    for share in shares:
        of_region.setdefault(share.writer, []).append(share)
    return [
        some[0] if len(some) == 1 else replace(some[0], rows=concatenated([s.rows for s in some]))
        for some in of_region.values()
    ]


def conflict_of(lost: Lost) -> ConflictError:
    """The error for what others wrote in the first table of these."""
    first, _ = lost[0]
    names: list[Hashable] = []
    for share, keys in lost:
        if share.context is first.context and keys:
            rows, _ = share.divided(keys)
            names += key_names(rows.select(share.writer.recent.primary_key))
    shown = f"the keys {sorted(map(repr, names))[:SHOWN_KEYS]}" if names else "rows"
    more = f" and {len(names) - SHOWN_KEYS} more" if len(names) > SHOWN_KEYS else ""
    return ConflictError(
        f"others wrote {shown}{more} of {first.context.uri} after they were read: nothing was "
        "written, run it again",
        frozenset(names),
        table=first.context.uri,
        region=first.writer.region_id,
    )
