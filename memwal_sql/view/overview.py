"""A table at one moment, as numbers and as a tree: base table, regions with their generations,
indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.tree import Tree

from memwal_sql.read.live.state import LiveState
from memwal_sql.view.terminal import line, render_html, render_text
from memwal_sql.view.texts import count_text, share, size_text

# The tree shows this many, and the number of the others.
_MOST_REGIONS = 50


@dataclass(frozen=True)
class GenerationView:
    """One generation. `state` is `merged`, `flushed` or `memtable`; sizes are None where its writer
    recorded none."""

    generation: int
    state: str
    rows: int | None
    bytes: int | None


@dataclass(frozen=True)
class RegionView:
    """One region.

    Attributes:
        merged_generation: up to here the base table has everything; 0: nothing.
        current_generation: the lowest one that is not flushed.
        log_position: the last position in its log; that of a fence, too.
        generations: those above the base table or still in storage, ascending.
    """

    region_id: str
    name: str
    status: str
    writer_epoch: int
    merged_generation: int
    current_generation: int
    flushed_position: int
    log_position: int
    generations: tuple[GenerationView, ...]

    @property
    def unmerged(self) -> int:
        """The number of flushed generations that are not merged."""
        return sum(generation.state == "flushed" for generation in self.generations)

    @property
    def stored(self) -> int:
        """The number of generations in storage, merged or not."""
        return sum(generation.state != "memtable" for generation in self.generations)

    @property
    def log_entries(self) -> int:
        """The number of WAL entries that are not flushed; a fence is one, too."""
        return self.log_position - self.flushed_position

    @property
    def unflushed_rows(self) -> int:
        """Rows in MemTables and in the WAL only."""
        return sum(
            generation.rows or 0
            for generation in self.generations
            if generation.state == "memtable"
        )


@dataclass(frozen=True)
class IndexView:
    """One index of the base table; `rows_indexed` of the base's rows are in it."""

    name: str
    columns: tuple[str, ...]
    type: str
    rows_indexed: int | None
    maintained: bool


@dataclass(frozen=True)
class Overview:
    """A table at one moment. `regions` is None where a version has no record of its regions;
    `region_specs` are texts such as `bucket(id, 16)`. `format_version` is that of our own state
    (docs/versions.md), None where only native code has written; `storage_version` is that of
    Lance's data files. `live` says which rows this handle has in memory, None for a version."""

    uri: str
    version: int
    primary_key: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    region_specs: tuple[str, ...]
    rows: int
    bytes: int
    fragments: int
    regions: tuple[RegionView, ...] | None
    indexes: tuple[IndexView, ...]
    format_version: int | None = None
    storage_version: str = ""
    live: LiveState | None = None

    @property
    def unmerged(self) -> int:
        """Flushed generations that are not merged, over all regions."""
        return sum(region.unmerged for region in self.regions or ())

    @property
    def unflushed_rows(self) -> int:
        """Rows that are not flushed, over all regions."""
        return sum(region.unflushed_rows for region in self.regions or ())

    def __rich__(self) -> Tree:
        return _tree(self)

    def _repr_html_(self) -> str:
        return render_html(_tree(self))

    def __str__(self) -> str:
        return render_text(_tree(self))

    def __repr__(self) -> str:
        counts = {
            "version": self.version,
            "rows": self.rows,
            "regions": len(self.regions or ()),
            "unmerged": self.unmerged,
            "unflushed_rows": self.unflushed_rows,
        }
        shown = ", ".join(f"{name}={count}" for name, count in counts.items())
        return f"Overview({self.uri!r}, {shown})"


def _tree(view: Overview) -> Tree:
    tree = Tree(line(("table ", "dim"), (view.uri, "bold")))
    columns = tree.add(
        line(f"{len(view.columns)} columns, primary key {', '.join(view.primary_key)}")
    )
    for name, kind in view.columns:
        columns.add(line(name, (f" {kind}", "dim")))
    tree.add(line((_format_text(view), "dim")))
    for spec in view.region_specs:
        tree.add(line(("regions by ", "dim"), spec))
    base = tree.add(line(("base table ", "bold"), base_text(view)))
    for index in view.indexes:
        base.add(line(("index ", "dim"), index.name, " ", index_text(index, view.rows)))
    if view.live is not None and view.live.state != "off":
        live = tree.add(line(("live rows ", "bold"), live_text(view.live)))
        for name, reason in view.live.refused.items():
            live.add(line(("without ", "dim"), name, f": {reason}"))
    if view.regions is None:
        tree.add(line(("no states of regions were recorded at this version", "yellow")))
        return tree
    regions = tree.add(line(("in front of it ", "bold"), front_text(view.regions)))
    for region in view.regions[:_MOST_REGIONS]:
        regions.add(line(("region ", "dim"), (region.name, "bold"), " ", _region_text(region)))
    if len(view.regions) > _MOST_REGIONS:
        regions.add(line((f"and {len(view.regions) - _MOST_REGIONS} more regions", "dim")))
    return tree


def base_text(view: Overview) -> str:
    """The base table in a line."""
    parts = [count_text(view.rows, "row"), size_text(view.bytes)]
    return f"version {view.version}: {', '.join([*parts, count_text(view.fragments, 'fragment')])}"


def live_text(live: LiveState) -> str:
    """The rows that a handle has in memory, in a line."""
    plans = ", ".join(
        f"{count_text(count, f'{path} plan')}" for path, count in live.queries.items()
    )
    if not live.columns:
        return f"{live.state}: {live.reason}; {plans}"
    parts = [count_text(live.rows, "row"), size_text(live.bytes), plans]
    reason = f"; {live.reason}" if live.reason else ""
    return f"{live.state}: {', '.join(parts)}, columns {', '.join(live.columns)}{reason}"


def front_text(regions: Sequence[RegionView]) -> str:
    """What waits in front of the base table, in a line."""
    flushed = [g for region in regions for g in region.generations if g.state == "flushed"]
    unflushed = sum(region.unflushed_rows for region in regions)
    parts = [count_text(len(regions), "region")]
    if flushed:
        rows = count_text(_total([generation.rows for generation in flushed]), "row")
        size = size_text(_total([generation.bytes for generation in flushed]))
        parts.append(f"{count_text(len(flushed), 'generation')} to merge with {rows}, {size}")
    if unflushed:
        parts.append(f"{count_text(unflushed, 'row')} not flushed")
    return ", ".join(parts if len(parts) > 1 else [*parts, "nothing waits"])


def _total(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)


def _format_text(view: Overview) -> str:
    """The versions of the table's formats in a line."""
    own = "none yet" if view.format_version is None else view.format_version
    return f"format version {own}, storage version {view.storage_version}"


def _region_text(region: RegionView) -> str:
    """A region's progress in a line, without its name."""
    parts = [f"epoch {region.writer_epoch}", f"merged up to generation {region.merged_generation}"]
    if region.unmerged:
        parts.append(f"{region.unmerged} to merge")
    if region.unflushed_rows:
        parts.append(f"{count_text(region.unflushed_rows, 'row')} not flushed")
    if region.status != "active":
        parts.append(region.status)
    return ", ".join(parts)


def index_text(index: IndexView, rows: int) -> str:
    """How far an index is, in a line without its name."""
    covered = "?" if index.rows_indexed is None else f"{share(index.rows_indexed, rows):.0%}"
    kept = ", maintained" if index.maintained else ""
    return f"{index.type} on {', '.join(index.columns)}: {covered} of the base table{kept}"
