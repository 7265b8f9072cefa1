"""Addresses that are counted are those that Lance gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from exec_nodes.sources.lance_scan import read_table, scan_dataset
from exec_nodes.sources.scan_addresses import scan_addresses
from exec_nodes.sources.source import ROW_ADDRESS

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


def dataset(folder: Path, rows: int, rows_a_file: int) -> Any:
    table = pa.table({"id": range(rows), "val": [f"v{i}" for i in range(rows)]}, SCHEMA)
    return lance.write_dataset(table, folder / "t", max_rows_per_file=rows_a_file)


def given_by_lance(found: Any, fragments: list[Any] | None) -> list[int]:
    scanner = found.scanner(columns=["id"], with_row_address=True, fragments=fragments)
    addresses: list[int] = scanner.to_table()[ROW_ADDRESS].to_pylist()
    return addresses


def scanned(found: Any, fragments: list[Any] | None, limit: int | None = None) -> list[int]:
    batches = scan_dataset(found, SCHEMA, (), limit, fragments, SCHEMA)
    return [int(one) for batch in batches for one in batch.column(ROW_ADDRESS).to_pylist()]


@pytest.mark.parametrize(
    ("rows_a_file", "chosen"),
    [
        (300_000, None),
        (70_000, None),
        (70_000, slice(1, None)),
        (70_000, slice(None, None, 2)),
    ],
)
def test_whole_fragments_are_counted(
    tmp_path: Path, rows_a_file: int, chosen: slice | None
) -> None:
    found = dataset(tmp_path, 200_000, rows_a_file)
    fragments = None if chosen is None else found.get_fragments()[chosen]
    assert scan_addresses(found, fragments) is not None
    assert scanned(found, fragments) == given_by_lance(found, fragments)
    assert scanned(found, fragments, 100_001) == given_by_lance(found, fragments)[:100_001]
    whole = read_table(found, SCHEMA)
    assert whole[ROW_ADDRESS].to_pylist() == given_by_lance(found, None)


def test_lance_is_asked_where_rows_were_deleted_or_fragments_are_many(tmp_path: Path) -> None:
    found = dataset(tmp_path, 1000, 25)
    assert scan_addresses(found) is None
    assert scanned(found, None) == given_by_lance(found, None)
    found.delete("id % 7 = 0 AND id < 30")
    few = found.get_fragments()[:3]
    assert scan_addresses(found, few) is None
    assert scanned(found, few) == given_by_lance(found, few)
    untouched = found.get_fragments()[3:9]
    assert scan_addresses(found, untouched) is not None
    assert scanned(found, untouched) == given_by_lance(found, untouched)
