"""Indexes of the base table: their files are there, with the bytes that Lance has recorded."""

from __future__ import annotations

from collections.abc import Iterator

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.storage.objects.memory import is_in_memory


def check_base_indexes(state: CheckState) -> Iterator[Finding]:
    """Queries read the files of an index, and fail without them."""
    if is_in_memory(state.context.uri):
        return  # Lance alone sees its files of a table in memory
    for index in indexes_of(state.base.dataset):
        for segment in index.segments:
            expected = segment.size_bytes
            if not expected or segment.base_id is not None:
                continue  # kept in the manifest, not recorded, or in the folder of another table
            folder = f"_indices/{segment.uuid}"
            size = sum(file.size for file in state.store.list(folder))
            if size < expected:
                yield Finding(
                    Severity.ERROR,
                    f"the index {index.name!r} of the base table has {size} of {expected} bytes: "
                    "files of it are missing or cut, and queries that use it fail",
                    folder,
                    f"make it again: table.create_index({index.field_names[0]!r}, "
                    f"{index.index_type.upper()!r}, name={index.name!r}, replace=True)",
                )
