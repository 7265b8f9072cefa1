"""The columns that rows were staged with, and those of the commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.transactions.tables import created, elsewhere, rows


@each("kind", [pa.int64(), pa.int32()])
def test_a_column_that_was_made_anew_is_another_one(fast_folder: Path, kind: pa.DataType) -> None:
    """Its other rows are null, so values for the one that was dropped don't belong there."""
    table = mw.open_table(created(str(fast_folder / str(kind)), "bucket(id, 2)"))
    tx = mw.transaction(table)
    tx.upsert(table, rows(7))
    table.merge()
    table.drop_columns(["v"])
    table.add_columns(pa.schema([pa.field("v", kind)]))
    with pytest.raises(mw.ReopenError, match="columns"):
        tx.commit()
    assert elsewhere(table.uri) == {None}
    table.close()
