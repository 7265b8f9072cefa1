"""An overview as HTML for a notebook. Everything that comes from a table is escaped."""

from __future__ import annotations

from html import escape

from memwal_sql.view.overview import GenerationView, Overview, RegionView
from memwal_sql.view.texts import (
    MOST_GENERATIONS,
    MOST_REGIONS,
    base_text,
    format_text,
    generation_text,
    index_text,
    region_text,
    share,
)

_COLOURS = {"merged": "#4c9a62", "flushed": "#d9a441", "memtable": "#4a90c2"}
_BAR = (
    '<span style="display:inline-block;width:8em;height:.7em;background:#8883;border-radius:3px">'
    '<span style="display:block;height:100%;width:{percent:.0f}%;background:{colour};'
    'border-radius:3px"></span></span>'
)


def render_html(view: Overview) -> str:
    """The table, its base, its indexes and its regions with their generations."""
    columns = ", ".join(f"{escape(name)} <i>{escape(kind)}</i>" for name, kind in view.columns)
    specs = "".join(f"<div>regions by {escape(spec)}</div>" for spec in view.region_specs)
    key = escape(", ".join(view.primary_key))
    return (
        f'<div style="line-height:1.5"><b>{escape(view.uri)}</b>'
        f"<div>primary key {key}; {columns}</div>"
        f"<div>{escape(format_text(view))}</div>{specs}"
        f"<div><b>base table</b> {escape(base_text(view))}</div>{_indexes(view)}{_regions(view)}"
        "</div>"
    )


def _indexes(view: Overview) -> str:
    rows = []
    for index in view.indexes:
        bar = _bar(share(index.rows_indexed or 0, view.rows), "merged")
        text = escape(index_text(index, view.rows))
        rows.append(f"<li>{bar} <code>{escape(index.name)}</code> {text}</li>")
    return f"<ul>{''.join(rows)}</ul>" if rows else ""


def _regions(view: Overview) -> str:
    if view.regions is None:
        return "<div>no states of regions were recorded at this version</div>"
    shown = "".join(_region(region) for region in view.regions[:MOST_REGIONS])
    hidden = len(view.regions) - MOST_REGIONS
    more = f"<div>and {hidden} more regions</div>" if hidden > 0 else ""
    return shown + more


def _region(region: RegionView) -> str:
    flushed = region.current_generation - 1
    bar = _bar(share(region.merged_generation, flushed), "merged")
    generations = "".join(_generation(one) for one in region.generations[-MOST_GENERATIONS:])
    hidden = len(region.generations) - MOST_GENERATIONS
    if hidden > 0:
        generations = f"<li>and {hidden} older generations</li>{generations}"
    return (
        f"<details><summary>{bar} <b>{escape(region.name)}</b> {escape(region_text(region))}"
        f"</summary><ul>{generations}</ul></details>"
    )


def _generation(one: GenerationView) -> str:
    return (
        f'<li><span style="color:{_COLOURS[one.state]}">{escape(one.state)}</span> '
        f"{escape(generation_text(one))}</li>"
    )


def _bar(part: float, state: str) -> str:
    return _BAR.format(percent=100 * part, colour=_COLOURS[state])
