"""Opening a flushed generation, and seeing that it is whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance

from exec_nodes.arrow.nested import check_width
from exec_nodes.base.columns import TOMBSTONE, TOMBSTONE_FIELD
from exec_nodes.lance.errors import damaged
from exec_nodes.lance.reading import rows_of


def open_generation(
    uri: str,
    name: str,
    rows: int | None,
    storage_options: Mapping[str, str] | None = None,
    session: Any = None,
) -> Any:
    """The Lance table at `uri`, which plans call `name`.

    `rows` is how many the region's manifest says that it has, deleted ones too; with None it must
    have some, as empty MemTables are not flushed. Raises CorruptFileError otherwise, as a manifest
    of zeros, which a power failure leaves, is an empty table for Lance; and where `_tombstone` does
    not tell of each row whether it deletes its key. Raises UnsupportedError for rows that are too
    wide.
    """
    options = dict(storage_options) if storage_options else None
    dataset = lance.dataset(uri, storage_options=options, session=session)
    check_width(dataset.schema)
    count = sum(fragment.metadata.physical_rows for fragment in dataset.get_fragments())
    if not count or count != (count if rows is None else rows):
        raise damaged(name, uri, f"it has {count} rows instead of {rows or 'some'}")
    wrong = wrong_tombstones(dataset)
    if wrong is not None:
        raise damaged(name, uri, f"it {wrong}")
    return dataset


def wrong_tombstones(dataset: Any) -> str | None:
    """The fault of a generation's column `_tombstone`, as the rest of a sentence after "it"; None
    if it is valid."""
    schema = dataset.schema
    if schema.get_field_index(TOMBSTONE) < 0:
        return f"has no column {TOMBSTONE!r}"
    field = schema.field(TOMBSTONE)
    if field.type != TOMBSTONE_FIELD.type:
        return f"has {field.type} in its column {TOMBSTONE!r} instead of {TOMBSTONE_FIELD.type}"
    # Lance itself refuses nulls where the schema has none.
    if field.nullable:
        nulls = rows_of(dataset.scanner(columns=[TOMBSTONE]))[TOMBSTONE].null_count
        if nulls:
            return f"has nulls in its column {TOMBSTONE!r}, in {nulls} rows"
    return None
