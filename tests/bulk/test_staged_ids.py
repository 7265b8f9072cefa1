"""Ids of jobs and queries name folders that are deleted with all that is in them, so what could
lead anywhere else is refused before anything is written or deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import staging_folder
from memwal_sql.errors import InvalidCallError
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.storage.paths import STAGING_FOLDER
from memwal_sql.table import Table
from tests.each import each
from tests.model.folder_state import folder_state

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})
HOSTILE = [
    *("", ".", "..", "../..", "../../..", "../job", "job/..", "a/b", "/", "/tmp", "a//b", "./job"),
    *("a\\b", "..\\..", "a\0", "job\n", " job", "job ", "é", "-job", ".job", "~", "x" * 129),
    *(None, 7, b"job", ["job"]),
]
USES: dict[str, Callable[[Table, Any], object]] = {
    "stager": lambda table, one: table.stager(one, RowForm()),
    "stager that replaces": lambda table, one: table.stager(one, RowForm(), replaces=True),
    "discard_staged": lambda table, one: table.discard_staged(one),
    "last_batch": lambda table, one: table.last_batch(one),
    "a mark": lambda table, one: BatchMark(one, 0),
}


@each("use", USES)
def test_an_id_that_leads_elsewhere_is_refused_by_name_and_nothing_changes(
    tmp_path: Path, use: str
) -> None:
    beside = tmp_path / "other" / "precious.txt"
    beside.parent.mkdir()
    beside.write_text("precious")
    table = mw.create_table(tmp_path / "table", SCHEMA, "id")
    rows = pa.table({"id": range(50_000), "val": [f"{key:040}" for key in range(50_000)]})
    table.stager("another-job", RowForm()).stage(rows.to_batches())
    before = folder_state(tmp_path)
    assert any("staging/another-job" in path for path in map(str, before))
    for one in HOSTILE:
        with pytest.raises(InvalidCallError) as caught:
            USES[use](table, one)
        assert repr(one) in str(caught.value)
        assert "must be up to 128 letters" in str(caught.value)
    assert folder_state(tmp_path) == before


@examples(max_examples=300)
@given(st.text(st.sampled_from("ab9._-/\\ ~\0\n:%é"), max_size=8))
@example("a..b")
@example("A-1_b.c")
def test_what_is_taken_is_one_folder_of_its_own(text: str) -> None:
    try:
        folder = staging_folder(text)
    except InvalidCallError:
        return
    assert folder == os.path.normpath(folder) == f"{STAGING_FOLDER}/{text}"
    assert os.path.dirname(folder) == STAGING_FOLDER
    assert os.path.basename(folder) == text
