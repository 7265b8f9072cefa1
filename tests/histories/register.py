"""Whether what several processes did to one key can have happened one after the other.

Each operation takes effect at one moment between its call and its answer. One whose outcome nobody
knows may take effect at any moment after its call, or never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf

Value = int | None  # None: the key is not there
UNREAD = -1  # stands for values that no read has had


class Kind(Enum):
    """What an operation does to its key."""

    WRITE = auto()  # the value is what the key has from now on; None deletes it
    INSERT = auto()  # the same, of a key that is not there
    READ = auto()  # the value is what the key had
    TAKEN = auto()  # an insert was refused: the key was there


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation on one key, between two moments; `end` is infinite where the outcome of a write
    is not known. No two writes have the same value."""

    kind: Kind
    key: int
    value: Value
    start: float
    end: float
    by: str = ""

    @property
    def is_unknown(self) -> bool:
        """Whether it may have happened or not."""
        return self.end == inf


def explains(operations: Sequence[Operation]) -> bool:
    """Whether some order of the operations of one key, in which none comes before one that had been
    answered when it began, gives every answer. At first the key is not there."""
    ordered = _relevant(operations)
    states: list[tuple[int, Value]] = [(0, None)]
    seen: set[tuple[int, Value]] = set()
    needed = sum(1 << i for i, one in enumerate(ordered) if not one.is_unknown)
    while states:
        done, value = states.pop()
        done = _read_on(ordered, done, value)
        if done & needed == needed:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        for index, one in _possible(ordered, done):
            if _changes(one, value):
                states.append((done | 1 << index, one.value))
    return False


def _relevant(operations: Sequence[Operation]) -> list[Operation]:
    """In the order of their calls. Writes of which nobody knows and nobody has read are all alike:
    of use, if at all, where the key must be there."""
    read = {one.value for one in operations if one.kind is Kind.READ} | {None}
    kept = [
        replace(one, value=UNREAD) if one.is_unknown and one.value not in read else one
        for one in operations
    ]
    if all(one.kind is not Kind.TAKEN for one in operations):
        kept = [one for one in kept if one.value != UNREAD]
    return sorted(kept, key=lambda one: one.start)


def _possible(ordered: Sequence[Operation], done: int) -> Iterator[tuple[int, Operation]]:
    """Those that may come next: they began before the first of the others was answered."""
    first = min((o.end for i, o in enumerate(ordered) if not done >> i & 1), default=inf)
    alike: set[tuple[Kind, Value]] = set()
    for index, one in enumerate(ordered):
        if one.start > first:
            return
        if done >> index & 1:
            continue
        # One of unknown outcome does what another one would that came later.
        if one.is_unknown:
            if (one.kind, one.value) in alike:
                continue
            alike.add((one.kind, one.value))
        yield index, one


def _read_on(ordered: Sequence[Operation], done: int, value: Value) -> int:
    """With all reads that this value answers: they change nothing, so the sooner the better."""
    more = True
    while more:
        more = False
        for index, one in _possible(ordered, done):
            if (one.kind is Kind.READ and one.value == value) or (
                one.kind is Kind.TAKEN and value is not None
            ):
                done |= 1 << index
                more = True
    return done


def _changes(one: Operation, value: Value) -> bool:
    return one.kind is Kind.WRITE or (one.kind is Kind.INSERT and value is None)
