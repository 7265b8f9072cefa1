"""An overview as a tree, for a terminal and for a notebook."""

from __future__ import annotations

import io

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from memwal_sql.view.overview import Overview, RegionView
from memwal_sql.view.texts import (
    MOST_GENERATIONS,
    MOST_REGIONS,
    base_text,
    format_text,
    generation_text,
    index_text,
    region_text,
)

_LINES = '<pre style="line-height:1.3">{code}</pre>'
_ENDLESS = 10_000
_STYLES = {"merged": "green", "flushed": "yellow", "memtable": "cyan"}


def render_tree(view: Overview) -> Tree:
    """The table, its base, its indexes and its regions with their generations."""
    tree = Tree(Text.assemble(("table ", "dim"), (view.uri, "bold")))
    columns = tree.add(f"{len(view.columns)} columns, primary key {', '.join(view.primary_key)}")
    for name, kind in view.columns:
        columns.add(Text.assemble(name, (f" {kind}", "dim")))
    tree.add(Text(format_text(view), "dim"))
    for spec in view.region_specs:
        tree.add(Text.assemble(("regions by ", "dim"), spec))
    base = tree.add(Text.assemble(("base table ", "bold"), base_text(view)))
    for index in view.indexes:
        base.add(Text.assemble(("index ", "dim"), index.name, " ", index_text(index, view.rows)))
    if view.regions is None:
        tree.add(Text("no states of regions were recorded at this version", "yellow"))
        return tree
    for region in view.regions[:MOST_REGIONS]:
        _add_region(tree, region)
    if len(view.regions) > MOST_REGIONS:
        tree.add(Text(f"and {len(view.regions) - MOST_REGIONS} more regions", "dim"))
    return tree


def render_html(view: Overview) -> str:
    """The same for a notebook, in one line a node."""
    console = Console(record=True, file=io.StringIO(), width=_ENDLESS, highlight=False)
    console.print(render_tree(view))
    return console.export_html(inline_styles=True, code_format=_LINES)


def _add_region(tree: Tree, region: RegionView) -> None:
    branch = tree.add(
        Text.assemble(("region ", "dim"), (region.name, "bold"), " ", region_text(region))
    )
    for one in region.generations[-MOST_GENERATIONS:]:
        branch.add(Text.assemble((f"{one.state} ", _STYLES[one.state]), generation_text(one)))
    hidden = len(region.generations) - MOST_GENERATIONS
    if hidden > 0:
        branch.add(Text(f"and {hidden} older generations", "dim"))
