"""Codes of change feeds: what a row of one does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UPSERT, DELETE, BEFORE, UNKNOWN = range(4)

# Word of a change feed -> kind: SQL, Debezium, Flink, Delta and this project.
CODES: Mapping[str, int] = {
    **dict.fromkeys(("upsert", "insert", "update", "c", "r", "u", "+I", "+U"), UPSERT),
    **dict.fromkeys(("update_after", "update_postimage"), UPSERT),
    **dict.fromkeys(("delete", "d", "-D"), DELETE),
    **dict.fromkeys(("update_before", "update_preimage", "-U"), BEFORE),
}


def kind_of(word: Any) -> int:
    """The kind of a code."""
    return CODES.get(word, UNKNOWN) if isinstance(word, str) else UNKNOWN
