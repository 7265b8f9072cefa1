"""LanceDB drops the MemWAL index and makes another one: who reads, writes or merges is told so, and
there is a way out."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pytest
from lancedb._lancedb import LsmWriteSpec

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from tests.docs.pages import blocks
from tests.each import each
from tests.interop.lancedb_client import (
    SCHEMA,
    Handle,
    by_key,
    create,
    folder,
    made_by_us,
    open_handle,
    rows,
)
from tests.model.writing import flush_rows, merge_rows

KEYS = range(24)


def _made(path: Path, state: str) -> mw.Table:
    table = made_by_us(path, mw.lance_bucket("id", 4))
    merge_rows(table, rows(dict.fromkeys(KEYS, "old")))
    if state == "collected":
        table.collect_garbage(older_than=timedelta(0))
    elif state == "flushed":
        flush_rows(table, rows(dict.fromkeys(KEYS, "ours")))
    return table


def _set_again(path: Path, spec: LsmWriteSpec) -> Handle:
    handle = open_handle(path)
    handle.table.unset_lsm_write_spec()
    handle.table.set_lsm_write_spec(spec)
    return handle


@each(
    "buckets, state",
    [(8, "merged"), (8, "collected"), (2, "flushed"), (6, "flushed"), (4, "merged")],
)
def test_an_index_of_lancedb_in_place_of_ours_is_refused(
    buckets: int, state: str, tmp_path: Path
) -> None:
    before = _made(tmp_path, state)
    version = lance.dataset(before.uri).version
    rows_before = by_key(before.to_arrow())
    handle = _set_again(tmp_path, LsmWriteSpec.bucket("id", buckets))
    table = mw.open_table(before.uri)
    calls: list[Any] = [
        lambda t: t.to_arrow(),
        lambda t: t.get(5),
        lambda t: t.to_arrow(consistency="eventual"),
        lambda t: t.writer().upsert(rows({1: "x"})),
        lambda t: t.merge(),
        lambda t: t.collect_garbage(),
        lambda t: t.changes(),
    ]
    for call in calls:
        for one in (table, before):
            with pytest.raises(mw.RepairError, match="another program has dropped the MemWAL"):
                call(one)
    report = table.check()
    assert not report.ok and f"restore version {version}" in str(report)
    errors = [one.check for one in report if one.severity is Severity.ERROR]
    assert [check for check in errors if check != "leftovers"] == ["merge progress"], str(report)
    if buckets >= 4:  # the ids of all regions are those of LanceDB's buckets
        assert "an id that LanceDB does not derive" not in str(report)
    lance.dataset(before.uri, version=version).restore()
    assert by_key(mw.open_table(before.uri).to_arrow()) == rows_before

    # What LanceDB has written since is in the regions, and the way out takes it along.
    handle = _set_again(tmp_path, LsmWriteSpec.bucket("id", buckets))
    for key in (3, 5, 7, 11):
        handle.upsert({key: "theirs"})
        handle.close()
    table = mw.open_table(before.uri)
    names: dict[str, Any] = {"mw": mw, "shared": table}
    (example,) = (one.text for one in blocks("docs/lancedb.md") if "def copy_rows" in one.text)
    exec(compile(example.partition("\n\n\nmended")[0], "example", "exec"), names)
    mended = mw.create_table(folder(tmp_path, "mended"), SCHEMA, "id")
    names["copy_rows"](table, mended)
    assert by_key(mended.to_arrow()) == {**rows_before, **dict.fromkeys((3, 5, 7, 11), "theirs")}


def test_a_table_from_before_the_identity_is_used_and_check_tells(tmp_path: Path) -> None:
    """It has neither of the marks: LanceDB made it."""
    handle = create(tmp_path, LsmWriteSpec.bucket("id", 4))
    handle.upsert({1: "theirs"})
    handle.close()
    table = mw.open_table(folder(tmp_path))
    assert by_key(table.to_arrow()) == {1: "theirs"} and table.check().ok
    handle.table.unset_lsm_write_spec()
    handle.table.set_lsm_write_spec(LsmWriteSpec.bucket("id", 8))
    report = mw.open_table(table.uri).check()
    assert not report.ok and "restore version" in str(report)
