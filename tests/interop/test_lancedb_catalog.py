"""A folder of tables that LanceDB and a catalog of a session have in common."""

from __future__ import annotations

from pathlib import Path

import datafusion
import lancedb
import pyarrow as pa

import memwal_sql as mw


def test_either_side_sees_and_reads_what_the_other_has_made(tmp_path: Path) -> None:
    ctx = datafusion.SessionContext()
    mw.catalog(ctx, tmp_path, "lake")
    database = lancedb.connect(tmp_path)
    theirs = database.create_table("theirs", pa.table({"id": [1, 2], "val": ["a", "b"]}))
    mw.sql(
        ctx,
        "CREATE TABLE lake.public.ours (PRIMARY KEY (id)) PARTITIONED BY (lance_bucket(id, 2)) "
        "AS SELECT * FROM lake.public.theirs",
    )
    table = mw.open_table(tmp_path / "ours.lance")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        writer.flush()
    table.merge()
    assert set(database.list_tables().tables) == {"ours", "theirs"}
    ours = database.open_table("ours")
    assert ours.count_rows() == 2
    assert sorted(ours.to_arrow()["val"].to_pylist()) == ["a", "b"]
    theirs.add(pa.table({"id": [3], "val": ["c"]}))
    assert mw.sql(ctx, "SELECT val FROM lake.public.theirs WHERE id = 3").to_pylist() == [
        {"val": "c"}
    ]
    database.drop_table("ours")
    shown = "SELECT table_name AS t FROM information_schema.tables WHERE table_schema = 'public'"
    assert mw.sql(ctx, shown).to_pylist() == [{"t": "theirs"}]
