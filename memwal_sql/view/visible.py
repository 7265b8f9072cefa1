"""Text of a table (values, names, messages) as a terminal shows it, never as it would obey it."""

from __future__ import annotations

import re

# Controls (C0, DEL, C1) move the cursor, set titles or write the clipboard; the others turn the
# direction of what follows, or end a line where nobody sees it.
_OBEYED = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_IN_A_CELL = re.compile(f"[{_OBEYED}]")
_IN_LINES = re.compile(f"(?!\n)[{_OBEYED}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """`text` on one line: what a terminal would obey is written as an escape."""
    return _IN_A_CELL.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """As `visible`, with the line feeds left as they are."""
    return _IN_LINES.sub(_escaped, text)


def visible_json(text: str) -> str:
    """A JSON document that means the same, without such characters inside its strings."""
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
