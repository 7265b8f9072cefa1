"""What `create_index` and `drop_index` refuse, and that what they say to do instead works."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.index.vector import VECTOR_KINDS
from tests.index.tables import rows, table_of


@pytest.mark.parametrize("metric", [None, "hamming"])
@pytest.mark.parametrize("kind", [one for one in VECTOR_KINDS if not one.endswith("FLAT")])
def test_vectors_of_bits_have_no_quantizer(tmp_path: Path, kind: str, metric: str | None) -> None:
    table = table_of(tmp_path, element=pa.uint8())
    with pytest.raises(mw.InvalidCallError, match="use IVF_FLAT or IVF_HNSW_FLAT"):
        table.create_index("v", kind, metric=metric)


def test_a_second_index_on_a_key_column_can_be_dropped_again(tmp_path: Path) -> None:
    """The last one by which keys are found stays, whichever that is."""
    table = table_of(tmp_path)
    table.create_index("id", "BITMAP", name="bits")
    table.create_index("id", "BTREE", name="other")
    for name in ("bits", "id_idx"):
        table.drop_index(name)
    with pytest.raises(mw.InvalidCallError, match="only 'other' finds the primary key column 'id'"):
        table.drop_index("other")
    assert table.indexes()["name"].to_pylist() == ["other"]
    assert table.get([7])["id"].to_pylist() == [7]


def test_rows_of_a_closed_writer_become_those_that_an_index_is_trained_on(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", rows(0, 1).schema, "id")
    with table.writer() as writer:
        writer.upsert(rows(0, 300))
    with pytest.raises(mw.InvalidCallError, match="upsert one of them again"):
        table.create_index("v", "IVF_FLAT")
    with table.writer() as writer:
        writer.upsert(rows(7, 8))
        writer.flush()
    table.merge()
    table.create_index("v", "IVF_FLAT")
    assert table.count_rows() == 300
