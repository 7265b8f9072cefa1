"""Where answers differ, and why. A record that differs no more fails the tests, too."""

from __future__ import annotations

from collections.abc import Mapping

LEFT_OUT: Mapping[str, str] = {}

_DIFFERENT: Mapping[str, tuple[str, ...]] = {
    "UPDATE with FROM: DataFusion has it not": ("update.slt:85",),
    "DISTINCT of DataFusion needs its optimizer, which the file has stopped": (
        "update.slt:99",
        "update.slt:102",
    ),
}


def expected(name: str) -> set[str]:
    """The records of a file that differ."""
    of_file = f"{name.rpartition('/')[2]}:"
    found = (one for records in _DIFFERENT.values() for one in records)
    return {one for one in found if one.startswith(of_file)}
