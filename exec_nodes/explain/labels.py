"""The labels by which plans name what they read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from exec_nodes.base.columns import Filter
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source


def source_label(source: Source) -> str:
    """`region_a[gen=2]`, or `base_table[gen=-1], version=7`."""
    version = source.version if isinstance(source, LanceSource) else None
    return source.name if version is None else f"{source.name}, version={version}"


def guard_label(source: Source) -> str:
    """The label of the filter by keys of a source: the bloom filter of a generation,
    `bf[region_a][gen=1]`, or the key index of a MemTable, `keys[region_a][gen=2]`."""
    kind = "keys" if isinstance(source, MemTableSource) else "bf"
    return f"{kind}[region_{source.region}][gen={source.generation}]"


def guard_labels(sources: Iterable[Source]) -> str:
    """The labels of several sources."""
    return ", ".join(map(guard_label, sources))


def conditions(filters: Sequence[Filter]) -> str:
    """`val > 5, id < 9`: as in the specification, without DataFusion's outer parentheses."""
    return ", ".join(_bare(condition.text) for condition in filters)


def _bare(text: str) -> str:
    while text.startswith("(") and _closing(text) == len(text) - 1:
        text = text[1:-1]
    return text


def _closing(text: str) -> int:
    """The position of the parenthesis that closes the first one of `text`; -1 without one."""
    depth, quote = 0, ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return at
    return -1
