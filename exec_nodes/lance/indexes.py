"""The indexes of a Lance table, which its manifest lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exec_nodes.lance.errors import BASE_NAME, lance_errors

_MOVED = "__lance_frag_reuse"


def indexes_of(dataset: Any, name: str = BASE_NAME) -> Sequence[Any]:
    """As Lance describes them, in its order. Raises CorruptFileError where what a manifest says of
    them is damaged; `name` is the table's in errors."""
    with lance_errors(name, dataset.uri):
        found: Sequence[Any] = dataset.describe_indices()
    return found


def moved_fragments(dataset: Any, name: str = BASE_NAME) -> frozenset[int]:
    """The fragments whose rows a compaction has moved and left the entries of indexes for later
    (`defer_index_remap`): files of indexes have the places before, and say that they cover them."""
    return frozenset(
        number
        for index in indexes_of(dataset, name)
        if index.name == _MOVED
        for segment in index.segments
        for number in segment.fragment_ids
    )
