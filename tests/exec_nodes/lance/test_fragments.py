"""Addresses that are counted, and rows that are left out, are those of Lance."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyroaring
import pytest

from exec_nodes.base.columns import ROW_ADDRESS_FIELD
from exec_nodes.lance.deletion_files import deleted_offsets
from exec_nodes.lance.fragments import counted_addresses, live_addresses
from exec_nodes.lance.scan import read_table, scan_dataset
from tests.soak import usual

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
FORMATS: list[dict[str, Any]] = [
    {},
    {"data_storage_version": "legacy"},
    {"data_storage_version": "2.0"},
    {"enable_stable_row_ids": True},
]


def dataset(folder: Path, rows: int, rows_a_file: int, **options: Any) -> Any:
    table = pa.table({"id": range(rows), "val": [f"v{i}" for i in range(rows)]}, SCHEMA)
    return lance.write_dataset(table, folder / "t", max_rows_per_file=rows_a_file, **options)


def given_by_lance(found: Any, fragments: list[Any] | None) -> pa.Table:
    scanner = found.scanner(
        columns=SCHEMA.names, with_row_address=True, fragments=fragments, scan_in_order=True
    )
    return scanner.to_table().cast(SCHEMA.append(ROW_ADDRESS_FIELD))


def scanned(found: Any, fragments: list[Any] | None, limit: int | None = None) -> pa.Table:
    batches = list(scan_dataset(found, SCHEMA, (), limit, fragments, SCHEMA))
    return pa.Table.from_batches(batches)


CHOICES = (None, slice(1, None), slice(None, None, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows_a_file", "chosen"), usual([*product((300_000, 70_000, 500), CHOICES)], 5)
)
def test_addresses_of_whole_fragments(
    tmp_path: Path, rows_a_file: int, chosen: slice | None
) -> None:
    found = dataset(tmp_path, 200_000, rows_a_file)
    fragments = None if chosen is None else found.get_fragments()[chosen]
    given = given_by_lance(found, fragments)
    if fragments != []:
        assert scanned(found, fragments).equals(given)
        assert scanned(found, fragments, 20_001).equals(given.slice(0, 20_001))
    assert read_table(found, SCHEMA).equals(given_by_lance(found, None))


@pytest.mark.parametrize("options", FORMATS)
def test_deleted_rows_are_left_out(tmp_path: Path, options: dict[str, Any]) -> None:
    found = dataset(tmp_path, 10_000, 3_000, **options)
    found.delete("id % 7 = 0 AND id < 5000")
    found.delete("id >= 2990 AND id < 3010")
    found = lance.dataset(found.uri)
    fragments = found.get_fragments()
    for chosen in (None, fragments[:1], fragments[1:], fragments[3:]):
        assert scanned(found, chosen).equals(given_by_lance(found, chosen))
    assert read_table(found, SCHEMA).equals(given_by_lance(found, None))
    for fragment in fragments:
        given = given_by_lance(found, [fragment])["_rowaddr"].to_numpy()
        assert live_addresses(found, fragment).tolist() == given.tolist()
    assert counted_addresses(fragments) is None


@pytest.mark.parametrize(
    ("rows", "suffix"), [(range(0, 40, 7), "arrow"), (range(0, 30_000, 3), "bin")]
)
def test_deletion_files_are_read_where_they_are_known(
    tmp_path: Path, rows: range, suffix: str
) -> None:
    found = dataset(tmp_path, 30_000, 40_000)
    found.delete(f"id % {rows.step} = 0 AND id < {rows.stop}")
    (fragment,) = lance.dataset(found.uri).get_fragments()
    assert fragment.deletion_file().endswith(suffix)
    read: list[str] = []

    def file(path: str) -> bytes:
        read.append(path)
        return (tmp_path / "t" / path).read_bytes()

    offsets = deleted_offsets(fragment, file)
    assert offsets is not None
    assert sorted(offsets.tolist()) == list(rows)
    wanted = [row for row in range(30_000) if row not in rows]
    assert live_addresses(None, fragment, file).tolist() == wanted  # Lance is not asked
    assert read == [fragment.deletion_file()] * 2
    other = pyroaring.BitMap([1, 2]).serialize()
    for damaged in (b"", file(fragment.deletion_file())[:-9], other):
        assert deleted_offsets(fragment, lambda path, data=damaged: data) is None

    def gone(path: str) -> bytes:
        raise FileNotFoundError(path)

    assert deleted_offsets(fragment, gone) is None
    assert live_addresses(lance.dataset(found.uri), fragment, gone).tolist() == wanted
