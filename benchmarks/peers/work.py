"""The mixed work, by all peers in turns."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.mixed import EVERY, LOOKUPS
from benchmarks.peers.peer import MissingPeerError, Peer, peer
from benchmarks.support.feed import Feed
from benchmarks.support.sizes import Sizes
from benchmarks.support.timing import seconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds of every upsert, aggregate and lookup of a peer."""

    peer: Peer
    upserts: list[float] = field(default_factory=list)
    aggregates: list[float] = field(default_factory=list)
    lookups: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float, float]:
        """Of an upsert, an aggregate, a lookup."""
        return median(self.upserts), median(self.aggregates), median(self.lookups)

    @property
    def total(self) -> float:
        """Of all of the work."""
        return sum(self.upserts) + sum(self.aggregates) + sum(self.lookups)


def mixed_by(names: list[str], folder: Path, sizes: Sizes) -> Mapping[str, Figures]:
    """The same upserts, `count(*), avg` and lookups by each of these peers, one after the other at
    every step; every answer is checked."""
    feed = Feed(sizes)
    figures: dict[str, Figures] = {}
    try:
        for name in names:
            own = folder / name.replace(" ", "-")
            own.mkdir(parents=True)
            try:
                figures[name] = Figures(peer(name)(own, feed.base))
            except MissingPeerError as error:
                print(f"{name} was not measured: {error}", file=sys.stderr)
        for number, rows in enumerate(feed.upserts(), 1):
            turns = list(figures.items()) if number % 2 else list(figures.items())[::-1]
            for _, figures_of in turns:
                _timed(figures_of.upserts, partial(figures_of.peer.upsert, rows))
            if number % EVERY:
                continue
            gc.collect()
            keys = [feed.key() for _ in range(LOOKUPS)]
            for name, figures_of in turns:
                count, mean = _timed(figures_of.aggregates, figures_of.peer.aggregate)
                feed.check_aggregate(count, mean, name)
                for key in keys:
                    got = _timed(figures_of.lookups, partial(figures_of.peer.get, key))
                    feed.check_row(key, [value for _, value, _ in got], name)
    finally:
        for figures_of in figures.values():
            figures_of.peer.close()
    return figures


def _timed(times: list[float], call: Callable[[], T]) -> T:
    answers: list[T] = []
    times.append(seconds(lambda: answers.append(call())))
    return answers[0]
