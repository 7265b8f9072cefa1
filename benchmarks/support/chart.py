"""Charts as SVG: lines and bars over logarithmic scales, in the colours of the page around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import cycle
from math import ceil, floor, log10

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 250, 20, 40
_BAR, _BAR_LEFT, _BAR_RIGHT = 16, 150, 70
_COLOURS = ("#4269d0", "#e08a00", "#e0453a", "#3a9a5b", "#9467bd", "#8c6d5a", "#009fb7")

_COLOUR_SCHEMES = (
    "<style>:root{color:#333}@media(prefers-color-scheme:dark){:root{color:#ccc}}</style>"
)


def chart(
    title: str, x_name: str, y_name: str, xs: Sequence[float], lines: Mapping[str, Sequence[float]]
) -> str:
    """The text of an SVG file with a line for each name: its values at `xs`, all above zero."""
    values = [value for line in lines.values() for value in line]
    x_axis = _Axis(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    y_axis = _Axis(
        10.0 ** floor(log10(min(values))),
        10.0 ** ceil(log10(max(values))),
        _HEIGHT - _BOTTOM,
        _TOP,
    )
    parts = [_beginning(title, _HEIGHT)]
    for x in x_axis.powers():
        at = x_axis.place(x)
        parts.append(_rule(at, _TOP, at, _HEIGHT - _BOTTOM))
        parts.append(_text(at, _HEIGHT - _BOTTOM + 16, f"{x:,.0f}", "middle"))
    for y in y_axis.powers():
        at = y_axis.place(y)
        parts.append(_rule(_LEFT, at, _WIDTH - _RIGHT, at))
        parts.append(_text(_LEFT - 6, at + 4, _power(y), "end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, x_name, "middle"))
    parts.append(_text(4, 12, y_name, "start"))
    for place, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [(x_axis.place(x), y_axis.place(y)) for x, y in zip(xs, line, strict=True)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        at = _TOP + 12 + 20 * place
        left = _WIDTH - _RIGHT + 20
        parts.append(f'<rect x="{left}" y="{at - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(left + 16, at, name, "start"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """The text of an SVG file with a bar for each value, below the name of its group; bars of one
    name have one colour, and that of zero has no length."""
    values = [value for group in groups.values() for value in group.values() if value] or [1.0]
    low, high = 10.0 ** floor(log10(min(values))), 10.0 ** ceil(log10(max(values)))
    axis = _Axis(low / 2, high, _BAR_LEFT, _WIDTH - _BAR_RIGHT)
    colours = dict(zip(dict.fromkeys(name for g in groups.values() for name in g), cycle(_COLOURS)))
    height = sum(_BAR * (len(group) + 1) + _BAR // 2 for group in groups.values()) + 2 * _BAR
    parts, at = [_beginning(title, height)], _BAR
    for power in axis.powers():
        x = axis.place(power)
        parts.append(_rule(x, 4, x, height - _BAR - 4))
        parts.append(_text(x, height - _BAR + 8, _power(power), "middle"))
    parts.append(_text(4, height - _BAR + 8, unit, "start"))
    for group_name, group in groups.items():
        parts.append(_text(4, at, group_name, "start"))
        for name, value in group.items():
            at += _BAR
            width = axis.place(value) - _BAR_LEFT if value else 0.0
            parts.append(_text(_BAR_LEFT - 6, at, name, "end"))
            parts.append(
                f'<rect x="{_BAR_LEFT}" y="{at - 10}" width="{width:.1f}" height="{_BAR - 5}" '
                f'fill="{colours[name]}"/>'
            )
            number = f"{value:.3g}" if value < 100 else f"{value:,.0f}"
            parts.append(_text(_BAR_LEFT + width + 5, at, number, "start"))
        at += _BAR + _BAR // 2
    return "\n".join([*parts, "</svg>"]) + "\n"


def _beginning(title: str, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="sans-serif" font-size="12" '
        f'fill="currentColor">\n{_COLOUR_SCHEMES}'
    )


def _power(value: float) -> str:
    """A power of ten."""
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


class _Axis:
    """A logarithmic scale between two places."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self._low, self._high = log10(low), log10(high)
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        part = (log10(value) - self._low) / ((self._high - self._low) or 1)
        return self._start + part * (self._end - self._start)

    def powers(self) -> list[float]:
        """The powers of ten on the axis."""
        return [10.0**power for power in range(ceil(self._low), floor(self._high) + 1)]


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="currentColor" stroke-opacity="0.2"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
