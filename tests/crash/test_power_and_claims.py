"""What a claim goes on from is on the disk before its writer's rows are acknowledged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from memwal_sql.write.turns import TurnSeconds
from tests.each import each
from tests.model.power import Disk
from tests.model.process import as_another_process

SCHEMA = pa.schema([(name, pa.int64()) for name in ("region", "id", "val")])
Row = dict[str, int]


def _rows(val: int) -> list[Row]:
    return [{"region": key % 2, "id": key, "val": val} for key in range(6)]


def _read(folder: Path) -> list[Row]:
    """As another process reads it."""
    with as_another_process():
        rows: list[Row] = mw.open_table(folder).scan().read_all().sort_by("id").to_pylist()
        return rows


def _write(folder: Path, row: Row) -> None:
    """As another process writes it, which takes over the row's region."""
    with as_another_process(), mw.open_table(folder).writer() as writer:
        writer.upsert([row])


CALLS: dict[str, Callable[[mw.TableWriter], object]] = {
    "upsert": lambda writer: writer.upsert(_rows(2)),
    "transaction": lambda writer: writer.upsert(_rows(2), atomic=True),
    "flush": lambda writer: writer.flush(),
}


def _power_fails(folder: Path, call: Callable[[mw.TableWriter], object], at: int) -> list[Row]:
    """Another process takes over region 0 and writes a row there when the `at`-th file that a call
    has linked can be read, and its folder is not synced yet. Then the power fails, which leaves
    `folder / "left"`. Returns what that process has read; nothing if the call links fewer files."""
    table_folder, seen, linked, disk, link = folder / "t", list[Row](), 0, Disk(), os.link

    def linking(*names: Any, **folders: int) -> None:
        nonlocal linked
        link(*names, **folders)
        linked += 1
        if linked == at:
            _write(table_folder, {"region": 0, "id": 100, "val": 7})
            seen.extend(_read(table_folder))
            shutil.copytree(table_folder, folder / "left")
            for lost in disk.lost(table_folder, folder):
                (folder / "left" / lost).unlink()

    with disk.watched():
        table = mw.create_table(
            table_folder, SCHEMA, ["region", "id"], regions=[mw.identity("region")]
        )
        writer = table.writer()
        writer.upsert(_rows(1))
        # The other process has lost its region by then, in most cases.
        with patch.object(os, "link", linking), suppress(MemWalError):
            call(writer)
        with suppress(MemWalError):
            writer.close()
    return seen


@each("name", CALLS)
def test_what_another_process_goes_on_from_stays_with_its_rows(
    tmp_path: Path, within: Any, name: str
) -> None:
    within(TurnSeconds.set(local=0.0))
    for at in count(1):
        folder = tmp_path / str(at)
        seen = _power_fails(folder, CALLS[name], at)
        if not seen:
            break
        left = _read(folder / "left")
        own = [row for row in seen if row["region"] == 0]
        assert [row for row in left if row["region"] == 0] == own, at
        values = {row["val"] for row in left if row["id"] < 100}
        assert len(values) == 1 or name == "upsert", (at, left)
        for region in (0, 1):
            _write(folder / "left", {"region": region, "id": 101 + region, "val": 8})
        assert [row for row in _read(folder / "left") if row["id"] < 101] == left, at
    assert at > 2
