"""What happens to a table between two looks at it: the rate of writes, and what jobs have done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from memwal_sql.errors import RetryError
from memwal_sql.view.overview import Overview, RegionView, base_text, front_text, index_text
from memwal_sql.view.texts import count_text, visible

_MOST_STEPS = 8
_COLUMNS = ("region", "entries/s", "log entries", "unflushed rows", "to merge", "merged", "epoch")


@dataclass(frozen=True, slots=True)
class Step:
    """A change of the table: `what` is, for example, `2 generations merged`."""

    time: datetime
    what: str


@dataclass(frozen=True, slots=True)
class Activity:
    """A table at one look, and what has happened since the look before.

    Attributes:
        rates: WAL entries a second by region id; None at the first look, and where the table could
            not be read.
        steps: the newest changes, oldest first.
    """

    time: datetime
    table: Overview
    rates: Mapping[str, float] | None = None
    steps: tuple[Step, ...] = ()

    @property
    def rate(self) -> float | None:
        """WAL entries a second of all regions."""
        return None if self.rates is None else sum(self.rates.values())

    def picture(self, most_regions: int) -> Group:
        """All of it, with so many of the regions: those that are written most."""
        view, rates = self.table, self.rates or {}
        regions = view.regions or ()
        busiest = sorted(
            regions, key=lambda region: (-rates.get(region.region_id, 0.0), -region.log_entries)
        )[:most_regions]
        table = Table(box=None, pad_edge=False)
        for name in _COLUMNS:
            table.add_column(name, justify="left" if name == "region" else "right")
        for region in filter(busiest.__contains__, regions):
            numbers = (
                region.log_entries,
                region.unflushed_rows,
                region.unmerged,
                region.merged_generation,
                region.writer_epoch,
            )
            rate = f"{rates[region.region_id]:,.1f}" if region.region_id in rates else ""
            table.add_row(Text(visible(region.name)), rate, *(f"{n:,}" for n in numbers))
        left_out = len(regions) - most_regions
        written = "" if self.rate is None else f"{self.rate:,.1f} WAL entries/s, "
        return Group(
            Text(f"{visible(view.uri)}  {self.time:%H:%M:%S} UTC", "bold"),
            Text(f"base table {base_text(view)}"),
            *(
                Text(f"index {visible(index.name)} {visible(index_text(index, view.rows))}")
                for index in view.indexes
            ),
            Text(f"in front of it {written}{front_text(regions)}"),
            table,
            *([Text(f"and {count_text(left_out, 'more region')}", "dim")] if left_out > 0 else ()),
            *(Text(f"{step.time:%H:%M:%S} {step.what}", "dim") for step in self.steps),
        )


def activities(
    overview: Callable[[], Overview],
    pause: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Activity]:
    """A record of each look, until `pause`, which is called between two looks, says to end. After
    the first, a look that fails with a `RetryError` is a step."""
    before, looked = overview(), clock()
    activity = Activity(datetime.now(UTC), before)
    yield activity
    while not pause():
        try:
            after, now = overview(), clock()
        except RetryError as error:
            step = Step(datetime.now(UTC), f"not read: {visible(str(error))}")
            steps = *activity.steps, step
            activity = replace(activity, time=step.time, rates=None, steps=steps[-_MOST_STEPS:])
            yield activity
            continue
        moment = datetime.now(UTC)
        rates = {
            region_id: entries / (now - looked)
            for region_id, entries in _new_entries(before, after).items()
        }
        steps = *activity.steps, *(Step(moment, what) for what in _steps(before, after))
        activity = Activity(moment, after, rates, steps[-_MOST_STEPS:])
        yield activity
        before, looked = after, now


def _new_entries(before: Overview, after: Overview) -> dict[str, int]:
    """By region id. A log begins at position 1: the last one is the number of its entries."""
    earlier = {region.region_id: region.log_position for region in before.regions or ()}
    return {
        region.region_id: region.log_position - earlier.get(region.region_id, 0)
        for region in after.regions or ()
    }


def _steps(before: Overview, after: Overview) -> Iterator[str]:
    """What writers and jobs have done between two looks."""
    present = {region.region_id: region for region in before.regions or ()}
    pairs = [
        (present[region.region_id], region)
        for region in after.regions or ()
        if region.region_id in present
    ]

    def grown(count: Callable[[RegionView], int]) -> int:
        return sum(count(new) - count(old) for old, new in pairs)

    flushed = grown(lambda region: region.current_generation)
    for count, noun, done in (
        (len(after.regions or ()) - len(pairs), "region", "made"),
        (grown(lambda region: region.writer_epoch), "claim", "of regions"),
        (flushed, "generation", "flushed"),
        (grown(lambda region: region.merged_generation), "generation", "merged"),
        (flushed - grown(lambda region: region.stored), "generation", "collected"),
    ):
        if count > 0:
            yield f"{count_text(count, noun)} {done}"
    if after.version > before.version:
        yield f"base version {after.version}: {count_text(after.fragments, 'fragment')}"
    indexed = {index.name: index for index in before.indexes}
    for index in after.indexes:
        if index != indexed.get(index.name):
            yield f"index {visible(index.name)} {visible(index_text(index, after.rows))}"
