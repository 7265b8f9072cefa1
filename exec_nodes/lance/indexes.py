"""The indexes of a Lance table, which its manifest lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exec_nodes.base.interrupts import raise_interrupt
from exec_nodes.lance.errors import BASE_NAME, damaged, lance_errors

_DROP_IT = "an index can't be read, and lance.dataset(uri).drop_index(name) drops one"
_MOVED = "__lance_frag_reuse"


def indexes_of(dataset: Any, name: str = BASE_NAME) -> Sequence[Any]:
    """Lance's descriptions of the indexes, in its order. Raises CorruptFileError where their part
    of a manifest is damaged, or lists a segment twice: Lance's statistics of such an index end the
    process; `name` is the table's in errors."""
    with lance_errors(name, dataset.uri):
        try:
            descriptions: Sequence[Any] = dataset.describe_indices()
        except (RuntimeError, NotImplementedError) as error:  # not of a store, nor of a query
            raise_interrupt(error)
            raise damaged(name, dataset.uri, f"{_DROP_IT}: {error}") from error
    segments = [segment.uuid for index in descriptions for segment in index.segments]
    if len(set(segments)) < len(segments):
        raise damaged(name, dataset.uri, "its manifest lists a segment of an index twice")
    return descriptions


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
