"""When a process may take over the regions of another one: by an injected clock alone."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import inf
from random import Random

from memwal_sql.write.turns import Tenure, Turn
from tests.each import each
from tests.soak import SOAK

T = 1.0
CALL, CLAIM = 0.003, 0.02


class World:
    """Processes that write regions: each is a generator of the seconds until its next step."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed).random
        self.holder: dict[str, str] = {}
        self.epoch: dict[str, int] = defaultdict(int)
        self.end: dict[str, int] = defaultdict(int)
        self.modified: dict[str, float] = defaultdict(lambda: -inf)
        self.fence: dict[str, int] = {}
        self.claimed: dict[str, float] = {}
        self.calls: dict[str, int] = defaultdict(int)
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.cut_short: list[tuple[str, float]] = []
        self.dead: set[str] = set()
        self._steps: list[tuple[float, int, str, Iterator[float]]] = []

    def start(self, name: str, steps: Iterator[float], at: float = 0.0) -> None:
        heapq.heappush(self._steps, (at, len(self._steps), name, steps))

    def run(self, seconds: float) -> None:
        while self._steps and self._steps[0][0] <= seconds:
            self.now, number, name, steps = heapq.heappop(self._steps)
            pause = None if name in self.dead else next(steps, None)
            if pause is not None:
                heapq.heappush(self._steps, (self.now + pause, number, name, steps))

    def tenure(self, region: str, name: str) -> Tenure | None:
        if self.holder.get(region) in (None, name):
            return None
        has_written = self.end[region] > self.fence[region]
        return Tenure(self.epoch[region], self.end[region], self.modified[region], has_written)

    def claim(self, regions: Sequence[str], name: str) -> None:
        for region in regions:
            busy = self.now - self.modified[region] < T / 8
            if busy and (tenure := self.now - self.claimed[region]) < T - 0.001:
                self.cut_short.append((region, tenure))
            self.holder[region], self.claimed[region] = name, self.now
            self.epoch[region] += 1
            self.append([region])
            self.fence[region] = self.end[region]

    def append(self, regions: Sequence[str]) -> None:
        for region in regions:
            self.end[region] += 1
            self.modified[region] = self.now

    def caller(
        self,
        name: str,
        regions: Sequence[str],
        calls: float = inf,
        call: float = CALL,
        most: int | None = None,
    ) -> Iterator[float]:
        """A closed loop of calls that take so long between their claim and their append. Each needs
        all of some regions, or, by chance, up to so many of them: who lacks one of these claims all
        that others have of those that it has ever needed."""
        used = set[str]()

        def lacking(all_used: bool = False) -> list[str]:
            asked = sorted(used) if all_used else needs
            return [region for region in asked if self.holder.get(region) != name]

        while self.calls[name] < calls:
            begun, needs = self.now, regions
            if most is not None:
                needs = regions[(first := int(self.random() * len(regions))) : first + most]
            used |= set(needs)
            while True:
                if not lacking():
                    yield call
                    if not lacking():  # else it has met a fence
                        break
                turn = Turn(T, self.random)
                while wait := turn.pause(
                    self.now,
                    self.now,
                    {region: self.tenure(region, name) for region in lacking(turn.has_begun)},
                    lacking(not turn.is_late),
                ):
                    yield wait
                self.claim(lacking(turn.has_begun), name)
                yield CLAIM
            self.append(needs)
            self.calls[name] += 1
            self.waits[name].append(self.now - begun)


def world(seed: int, seconds: float, **needs: Sequence[str]) -> World:
    """Processes that call all the time for so long."""
    made = World(seed)
    for name, regions in needs.items():
        made.start(name, made.caller(name, regions))
    made.run(seconds)
    return made


SEEDS = range(4 * SOAK)


@each("seed", SEEDS)
def test_two_processes_work_in_whole_turns_and_share(seed: int) -> None:
    both = world(seed, 30.0, a="rstu", b="rstu")
    assert both.cut_short == []
    assert max(both.waits["a"] + both.waits["b"]) < 1.5 * T
    assert min(both.calls.values()) * 1.3 > max(both.calls.values())
    assert sum(both.calls.values()) > 0.9 * world(seed, 30.0, a="rstu").calls["a"]


@each("seed", SEEDS)
def test_calls_that_need_some_regions_each_work_in_turns_too(seed: int) -> None:
    """A process that took back what each call lacks alone would stop at the next call."""
    made = World(seed)
    for name in "ab":
        made.start(name, made.caller(name, "rstuvw", most=2))
    made.run(60.0)
    assert max(made.waits["a"] + made.waits["b"]) < 2.5 * T
    assert min(made.calls.values()) * 1.5 > max(made.calls.values())
    assert sum(made.calls.values()) > 0.8 * world(seed, 60.0, a="r").calls["a"]


@each("seed", SEEDS)
def test_three_processes_share_within_a_factor_of_two(seed: int) -> None:
    three = world(seed, 30.0, a="rs", b="rs", c="rs")
    assert max(max(waits) for waits in three.waits.values()) < 4 * T
    assert min(three.calls.values()) * 2 > max(three.calls.values())


@each("seed", SEEDS)
def test_processes_that_share_some_regions_all_go_on(seed: int) -> None:
    """Each holds what another one needs next: who takes a region takes all that it lacks."""
    ring = world(seed, 30.0, a="rs", b="st", c="tr")
    assert max(max(waits) for waits in ring.waits.values()) < 6 * T
    assert min(ring.calls.values()) * 4 > max(ring.calls.values())


@each("seed", SEEDS)
def test_a_process_goes_on_beside_others_that_share_a_region_each(seed: int) -> None:
    """All regions that it has lost are hardly ever free at once."""
    made = World(seed)
    for number, region in enumerate("rstuvwxy"):
        for name in "ab":
            made.start(f"{region}{name}", made.caller(f"{region}{name}", region), 0.37 * number)
    made.start("all", made.caller("all", "rstuvwxy", most=1))
    made.run(60.0)
    assert max(made.waits["all"]) < 5 * T
    assert made.calls["all"] > 20


@each("seed", SEEDS)
def test_a_process_that_died_is_replaced_when_it_was_quiet_for_an_eighth_of_a_turn(
    seed: int,
) -> None:
    one = World(seed)
    for name in "ab":
        one.start(name, one.caller(name, "rs"))
    one.run(5.0 + 0.1 * seed)
    died, holder = one.now, one.holder["r"]
    other = ({"a", "b"} - {holder}).pop()
    before = one.calls[other]
    one.dead.add(holder)
    has_written = all(one.end[region] > one.fence[region] for region in "rs")
    one.run(died + (T / 2 if has_written else T))
    assert one.calls[other] > before
    assert one.cut_short == []


@each("seed", SEEDS)
def test_many_short_programs_neither_starve_nor_are_starved_by_a_service(seed: int) -> None:
    """As fifty `memwal sql "INSERT"`, some of them at the same time."""
    made = World(seed)
    made.start("service", made.caller("service", "rstu"))
    short = [f"program {number}" for number in range(50)]
    for number, name in enumerate(short):
        made.start(name, made.caller(name, "rstu"[number % 4], calls=1), 1 + 0.5 * number)
    made.run(60.0)
    assert [name for name in short if not made.calls[name]] == []
    assert max(made.waits["service"]) < T
    assert max(max(made.waits[name]) for name in short) < 5 * T
    assert made.cut_short == []


@each("seed", SEEDS)
def test_a_statement_that_reads_for_some_time_gets_to_its_write_beside_a_service(
    seed: int,
) -> None:
    made = World(seed)
    made.start("service", made.caller("service", "rs"))
    made.start("statement", made.caller("statement", "s", calls=5, call=0.4 * T), 1.0)
    made.run(30.0)
    assert made.calls["statement"] == 5
    assert max(made.waits["statement"]) < 2 * T
    assert max(made.waits["service"]) < T


def test_a_process_that_nobody_contends_with_never_waits() -> None:
    cases: list[tuple[Tenure | None, float]] = [
        (None, 0.0),  # new, or of this process
        (Tenure(7, 40, -T), 0.0),  # idle
        (Tenure(7, 40, None), T / 16),  # the store does not say
        (Tenure(7, 40, -T / 4), T / 16),
    ]
    for tenure, expected in cases:
        assert Turn(T, lambda: 0.5).pause(100.0, 0.0, {"r": tenure}) == expected, tenure
    both = {"r": None, "s": Tenure(7, 40, 0.0)}
    assert Turn(T, lambda: 0.5).pause(100.0, 0.0, both) == T / 16


def test_a_turn_comes_after_a_whole_one_or_a_quiet_time_and_is_asked_for_again() -> None:
    def turns_come(tenure: Callable[[float], Tenure]) -> float:
        turn, now = Turn(T, lambda: 0.0), 0.0
        while pause := turn.pause(now, now, {"r": tenure(now)}):
            now += pause
        return now

    assert turns_come(lambda now: Tenure(1, int(1000 * now), now)) == T + T / 16
    assert turns_come(lambda now: Tenure(1, 7, 0.0)) == T / 8 + T / 16
    # It may be a statement that reads.
    assert turns_come(lambda now: Tenure(1, 7, 0.0, has_written=False)) == T / 2 + T / 16
    # It was lost before, and its new holder has had a turn.
    assert turns_come(lambda now: Tenure(1, int(1000 * now), now, known_since=-T)) == T / 16
    # Another one was quicker: its turn is waited for, and then this one has waited longer.
    assert turns_come(lambda now: Tenure(1 + (now > T), int(1000 * now), now)) == 2 * T + T / 16
