"""Opening a flushed generation, and seeing that it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance

from exec_nodes.sources.lance_errors import damaged


def open_generation(
    uri: str,
    name: str,
    rows: int | None,
    storage_options: Mapping[str, str] | None = None,
    session: Any = None,
) -> Any:
    """The Lance table at `uri`, which plans call `name`.

    `rows` is how many the region's manifest says that it has, deleted ones too; with None it must
    have some, as empty MemTables are not flushed. Raises CorruptFileError otherwise: a manifest of
    zeros, as a power failure leaves, is an empty table for Lance.
    """
    options = dict(storage_options) if storage_options else None
    dataset = lance.dataset(uri, storage_options=options, session=session)
    found = sum(fragment.metadata.physical_rows for fragment in dataset.get_fragments())
    if not found or found != (found if rows is None else rows):
        raise damaged(name, uri, f"it has {found} rows instead of {rows or 'some'}")
    return dataset
