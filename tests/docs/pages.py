"""The README and the pages of the manual, as the examples and links in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the `text` block that shows what it prints."""

    language: str
    text: str
    output: str | None = None


def page(path: str) -> str:
    """A page by its path in the repository."""
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(path: str) -> list[Block]:
    """The blocks of a page in their order, each with what it is said to print.

    Raises ValueError for a `text` block that follows nothing.
    """
    found: list[Block] = []
    for language, text in _BLOCK.findall(page(path)):
        if language != "text":
            found.append(Block(language, text))
        elif found and found[-1].output is None:
            found[-1] = Block(found[-1].language, found[-1].text, text)
        else:
            raise ValueError(f"{path}: this output is of no example: {text!r}")
    return found


def block(path: str, language: str) -> Block:
    """The only block of that language on a page."""
    (found,) = (one for one in blocks(path) if one.language == language)
    return found


def links(path: str) -> list[str]:
    """What a page links to within the repository: paths, with their anchors."""
    return re.findall(r"\]\((?!https?:)([^)]+)\)", page(path))


def anchors(path: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
