"""Texts for people, the same in a terminal and in a notebook: numbers, and values of a table
without control characters that a terminal would obey."""

from __future__ import annotations

import re

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

# Controls (C0, DEL, C1) move the cursor, set titles or write the clipboard; the others turn the
# direction of what follows, or end a line where nobody sees it.
_OBEYED = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_IN_A_CELL = re.compile(f"[{_OBEYED}]")
_IN_LINES = re.compile(f"(?!\n)[{_OBEYED}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def size_text(size: int | None) -> str:
    """`1.5 MB`; `?` where nobody knows."""
    if size is None:
        return "?"
    value, unit = float(size), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def count_text(count: int | None, noun: str) -> str:
    """`1 row`, `1,200 rows`, `? rows`."""
    if count is None:
        return f"? {noun}s"
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def share(part: int, whole: int) -> float:
    """A part of a whole, between 0 and 1; 1 of nothing."""
    return 1.0 if whole <= 0 else min(1.0, part / whole)


def visible(text: str) -> str:
    """`text` on one line: characters that a terminal would obey are shown as escapes."""
    return _IN_A_CELL.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """The same as `visible`, but line feeds stay."""
    return _IN_LINES.sub(_escaped, text)


def visible_json(text: str) -> str:
    """A JSON document that means the same, without such characters inside its strings."""
    return _IN_LINES.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
