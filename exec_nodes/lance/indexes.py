"""The indexes of a Lance table, which its manifest lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exec_nodes.lance.errors import BASE_NAME, lance_errors


def indexes_of(dataset: Any, name: str = BASE_NAME) -> Sequence[Any]:
    """As Lance describes them, in its order. Raises CorruptFileError where what a manifest says of
    them is damaged; `name` is the table's in errors."""
    with lance_errors(name, dataset.uri):
        found: Sequence[Any] = dataset.describe_indices()
    return found
