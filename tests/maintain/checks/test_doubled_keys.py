"""Keys that plain Lance has inserted twice: the check names them, and an upsert heals them."""

from __future__ import annotations

import lance
import pyarrow as pa

import memwal_sql as mw
from tests.model.writing import merge_rows

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})


def _inserted_by_two(table: mw.Table, key: int, *, use_index: bool) -> None:
    datasets = [lance.dataset(table.uri) for _ in range(2)]
    for number, dataset in enumerate(datasets):
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.use_index(use_index).execute(pa.table({"id": [key], "v": [number]}))


def test_doubled_keys_are_named_and_healed_by_an_upsert(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    merge_rows(table, {"id": [1, 2], "v": [1, 2]})
    table.build_indexes()
    _inserted_by_two(table, 8, use_index=False)  # the way of docs/operating.md
    assert table.get(8).num_rows == 1 and table.check().ok
    for key in (9, 7):
        _inserted_by_two(table, key, use_index=True)
    (found,) = (one for one in table.check() if one.check == "base keys")
    assert "2 keys occur" in found.what and "{'id': 9}, {'id': 7}" in found.what
    merge_rows(table, {"id": [9, 7], "v": [90, 70]})
    assert table.check().ok and lance.dataset(uri).count_rows() == 5
    assert table.get([7, 9]).column("v").to_pylist() == [70, 90]
