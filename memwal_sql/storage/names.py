"""Bit-reversed file names of manifest versions and WAL entries.

A number's 64 bits are written lowest first, so that consecutive files fall into different parts of
an object store's key space (specification 1, "WAL Storage Layout").
"""

from __future__ import annotations

_BITS = 64


def reversed_name(number: int) -> str:
    """The 64 characters `0` and `1` of `number`, lowest bit first: 5 gives `1010000...`."""
    if not 0 <= number < 1 << _BITS:
        raise ValueError(f"{number} does not fit into {_BITS} bits")
    return f"{number:064b}"[::-1]


def parse_reversed_name(name: str) -> int | None:
    """The number of a name without its suffix; None when the name has another form."""
    if len(name) != _BITS or name.strip("01"):
        return None
    return int(name[::-1], 2)
