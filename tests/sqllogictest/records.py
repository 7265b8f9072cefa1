"""The records of a sqllogictest file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_ENGINE = "datafusion"


@dataclass(frozen=True, slots=True)
class Record:
    """A statement or a query.

    Attributes:
        name: file and line.
        is_query: whether it has rows to compare.
        is_sorted: whether the file says that its rows are in no order.
    """

    name: str
    sql: str
    is_query: bool
    is_sorted: bool


def records(path: Path) -> Iterator[Record]:
    """The records of a file and of those that it includes, in order."""
    lines = path.read_text().splitlines()
    place, skip = 0, False
    while place < len(lines):
        start, words = place, lines[place].split()
        place += 1
        match words:
            case ["halt"]:
                return
            case ["include", pattern]:
                for part in sorted(path.parent.glob(pattern)):
                    yield from records(part)
            case ["onlyif" | "skipif" as word, engine, *_]:
                skip = skip or (engine.lower() == _ENGINE) == (word == "skipif")
            case ["statement" | "query" as kind, *rest]:
                sql, place = _text(lines, place, rest)
                if not skip:
                    modes = {"rowsort", "valuesort"}
                    name = f"{path.name}:{start + 1}"
                    is_query = kind == "query" and rest[:1] != ["error"]
                    yield Record(name, sql, is_query, not modes.isdisjoint(rest))
                skip = False


def _text(lines: Sequence[str], place: int, words: Sequence[str]) -> tuple[str, int]:
    """The SQL of a record, and the place after the record."""
    start = place
    while place < len(lines) and lines[place].strip() not in ("", "----"):
        place += 1
    sql = "\n".join(lines[start:place])
    # An error of several lines ends with two that are empty.
    end = [""] if words[:1] != ["error"] else ["", ""]
    if lines[place : place + 1] == ["----"]:
        while place < len(lines) and lines[place : place + len(end)] != end:
            place += 1
    return sql, place
