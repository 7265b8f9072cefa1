"""Texts as errors show them: a caller's own may be of any length."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_MOST_QUOTED = 200
# A regular expression over a value of megabytes takes a hundred times as much memory.
_MOST_READ = 20_000
_MOST = 1000
_NAMES, _NAME = 10, 40
_END = 250
# An apostrophe within a word quotes nothing.
_QUOTED = re.compile(r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)


def brief(text: str) -> str:
    """A message of a few lines: what stands in quotes in it has at most 200 characters."""
    if len(text) <= _MOST_QUOTED:
        return text
    text = shortened(text, _MOST_READ, _MOST_READ // 2)
    return shortened(_QUOTED.sub(_cut, text), _MOST, _END)


def names_text(names: Iterable[str]) -> str:
    """Names of a caller's columns as a list: ten of them, with 40 characters each. The first line
    of any text file is names too, and an error does not repeat it."""
    shown = [shortened(name, _NAME) for name in islice(names, _NAMES + 1)]
    return f"{shown}" if len(shown) <= _NAMES else f"{shown[:_NAMES]} and more"


def shortened(text: str, most: int = _MOST_QUOTED, end: int = 0) -> str:
    """A text cut to this many characters, the last of which are `end`."""
    if len(text) <= most:
        return text
    return f"{text[: most - end - 3]}...{text[len(text) - end :]}"


def _cut(quoted: re.Match[str]) -> str:
    text = quoted[0]
    return text if len(text) <= _MOST_QUOTED else f"{text[: _MOST_QUOTED - 4]}...{text[0]}"
