"""Charts of few figures."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from benchmarks.support.chart import bars
from tests.each import each


@each(
    "groups, widths",
    [
        ({}, 0),
        ({"a": {}}, 0),
        ({"a": {"x": 0.0, "y": 2.0}}, 2),
        ({"a": {"x": 0.0}}, 1),
        ({"a": {"x": 1.0}}, 1),
    ],
)
def test_bars_of_no_figure_or_zero(groups: Mapping[str, Mapping[str, float]], widths: int) -> None:
    root = ElementTree.fromstring(bars("title", "ms", groups))
    drawn = [float(bar.get("width", "-1")) for bar in root.iter() if bar.tag.endswith("rect")]
    figures = [figure for group in groups.values() for figure in group.values()]
    assert len(drawn) == widths and [width > 0 for width in drawn] == [f > 0 for f in figures]
