"""The live rows of a table, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LiveState:
    """Whether a table handle has live rows.

    Attributes:
        state: `off`, `none`, `loading` (rows or columns are being read) or `live`.
        rows: how many there are.
        columns: the names of those that queries can read.
        bytes: in memory, those of rows that some column has not taken in yet, too.
        queries: how many plans read them (`live`) or all else (`general`).
        reason: why the handle has no live rows, or why it dropped the last ones.
        refused: why some columns that queries asked for are not there, by name.
    """

    state: str
    rows: int = 0
    columns: tuple[str, ...] = ()
    bytes: int = 0
    queries: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
