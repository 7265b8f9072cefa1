"""Whether transactions that append to lists can have come one after the other.

Every value is appended once, so the longest list that was read of a key is the order of its writes.
From it follow the dependencies: a write after a write, a read of a write, a write after a read. The
anomalies are those of Adya: G0 is a cycle of writes, G1a a read of what was refused, G1c a cycle of
writes and reads, G-single a cycle with one write after a read: two states seen as one. The smallest
G-single is half a transaction. G2 is any other cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

Values = tuple[int, ...]
Edges = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Transaction:
    """What was done together: the lists that were read, and the value appended to each key.
    `outcome` is None where nobody knows it."""

    name: str
    reads: Mapping[int, Values] = field(default_factory=dict)
    appends: Mapping[int, int] = field(default_factory=dict)
    outcome: bool | None = True


def anomalies(
    transactions: Sequence[Transaction], *, serial: bool = True, readers: bool = True
) -> Iterator[str]:
    """What can't have come one after the other; nothing if all can. Unless they are `serial`, of
    G-single only halves: a query may see a write and not yet what that transaction had read.
    Without `readers`, queries may see single writes of two regions in opposite orders."""
    orders: dict[int, Values] = {}
    for reader in transactions:
        for key, values in reader.reads.items():
            if len(values) > len(orders.get(key, ())):
                orders[key] = values
    author = {(k, v): writer for writer in transactions for k, v in writer.appends.items()}
    for key, order in orders.items():
        if len(set(order)) < len(order):
            yield f"key {key} has a value twice: {order}"
        for value in order:
            writer = author.get((key, value))
            if writer is None or writer.outcome is False:
                yield f"G1a: key {key} has {value}, which was refused or never written"
    writes: set[tuple[str, str]] = set()
    reads: set[tuple[str, str]] = set()
    overwritten: set[tuple[str, str]] = set()
    names = {place: writer.name for place, writer in author.items()}
    for key, order in orders.items():
        chain = [names.get((key, value), "nobody") for value in order]
        writes |= set(pairwise(chain))
    for reader in transactions:
        for key, values in reader.reads.items():
            order = orders.get(key, ())
            if values != order[: len(values)]:
                yield f"{reader.name} read {values} of key {key}, whose order is {order}"
                continue
            if values:
                reads.add((names.get((key, values[-1]), "nobody"), reader.name))
            if len(values) < len(order):
                overwritten.add((reader.name, names.get((key, order[len(values)]), "nobody")))
        for writer in transactions:
            both = {k: v for k, v in writer.appends.items() if k in reader.reads}
            if len({value in reader.reads[key] for key, value in both.items()}) > 1:
                yield f"half of {writer.name} is in {reader.name}: {reader.reads}"
    for name, edges in (("G0", writes), ("G1c", writes | reads)):
        if found := cycle(edges):
            yield f"{name}: {found}"
    for reader_name, writer_name in overwritten if serial else ():
        if reader_name != writer_name and reaches(writes | reads, writer_name, reader_name):
            yield f"G-single: {writer_name} wrote over what {reader_name} read, and came before it"
    writers = {written.name for written in transactions if written.appends}
    checked = {edge for edge in overwritten if readers or edge[0] in writers}
    if serial and (found := cycle(writes | reads | checked)):
        yield f"G2: {found}"


def cycle(edges: Edges) -> object:
    """A cycle, or None; an edge from a node to itself is not a cycle."""
    before: dict[str, set[str]] = defaultdict(set)
    for first, second in edges:
        if first != second:
            before[second].add(first)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        return error.args[1]
    return None


def reaches(edges: Edges, start: str, end: str) -> bool:
    """Whether a way of edges leads from start to end."""
    after: dict[str, set[str]] = defaultdict(set)
    for first, second in edges:
        after[first].add(second)
    seen, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            todo += after[name]
    return False
