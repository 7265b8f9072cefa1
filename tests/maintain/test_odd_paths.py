"""Tables in folders with names that URIs encode: nothing appears beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import memwal_sql as mw

NAMES = ("ü ñ", "a%20b", "a#b", "a?b", "a[b]", "a\\b", "日本", "plain")


def test_tags_and_checkpoints_leave_nothing_beside_the_table(tmp_path: Path) -> None:
    for number, name in enumerate(NAMES):
        folder = tmp_path / str(number)
        uri = str(folder / name)
        table = mw.create_table(uri, pa.schema({"id": pa.int64()}), primary_key="id")
        with table.writer() as writer:
            writer.upsert([{"id": 1}])
        table.checkpoint("before")
        table.tags.create("opening", table.snapshot_regions())
        assert list(table.tags) == ["opening"], name
        assert mw.open_table(uri, version="opening").count_rows() == 0, name
        assert mw.open_table(uri, checkpoint="before").count_rows() == 1, name
        table.tags.delete("opening")
        table.drop_checkpoint("before")
        assert list(table.tags) == [], name
        assert os.listdir(folder) == [name]
