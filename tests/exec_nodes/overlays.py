"""Values that Lance lays over some of a fragment's without a new data file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from lance.fragment import DataFile


def allow_overlays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lance writes them since 14, when it is told to."""
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")


def overlay(dataset: Any, number: int, name: str, values: pa.Array, offsets: Sequence[int]) -> None:
    """Commit other values of a column for the rows of a fragment at `offsets`, ascending."""
    (field,) = (one.id() for one in dataset.lance_schema.fields() if one.name() == name)
    table, file = pa.table({name: values}), f"over-{uuid4().hex}.lance"
    with LanceFileWriter(f"{dataset.uri}/data/{file}", table.schema) as writer:
        writer.write_batch(table)
    known = dataset.get_fragment(number).data_files()[0]
    version = known.file_major_version, known.file_minor_version
    made = lance.LanceOperation.DataOverlayFile(
        DataFile(file, [field], [0], *version), list(offsets)
    )
    group = lance.LanceOperation.DataOverlayGroup(number, [made])
    operation = lance.LanceOperation.DataOverlay([group])
    lance.LanceDataset.commit(dataset.uri, operation, read_version=dataset.version)
