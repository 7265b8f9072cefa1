"""Commits of the base table that fail by the store, and not for the sake of somebody else's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.maintain.details import mark_only

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("n", pa.int64()),
        pa.field("m", pa.int64(), nullable=False),
    ]
)
ROWS = pa.table({"id": [1, 2], "n": [10, 20], "m": [1, 2]}, SCHEMA)

# A region that the table does not have.
STRANGER = uuid4()
COMMITS: dict[str, Callable[[mw.Table], object]] = {
    "replace_rows": lambda table: table.replace_rows(ROWS.slice(0, 1)),
    "replace_rows by reading": lambda table: table.replace_rows(table.to_arrow),
    "snapshot_regions": lambda table: table.snapshot_regions(),
    "merge": lambda table: table.merge(),
    "merge in tasks": lambda table: table.merge_in_tasks(
        lambda shares: [table.merge_share(share) for share in shares], 2
    ),
    "mark_only": lambda table: mark_only(lance.dataset(table.uri), {STRANGER: 1}),
    "build_indexes": lambda table: table.build_indexes(),
    "create_index": lambda table: table.create_index("m", "BTREE"),
    "drop_index": lambda table: table.drop_index("n_idx"),
    "add_columns": lambda table: table.add_columns(pa.field("k", pa.int64())),
    "add computed columns": lambda table: table.add_columns({"k": "n + 1"}),
    "drop_columns": lambda table: table.drop_columns("m"),
    "rename_column": lambda table: table.rename_column("m", "k"),
    "set_nullable": lambda table: table.set_nullable("m"),
}


@pytest.mark.parametrize("name", COMMITS)
def test_the_outcome_of_a_commit_that_the_store_refuses_is_unknown(
    name: str, fast_folder: Path, no_pauses: None
) -> None:
    """Whatever the place of the table is called: it is no conflict, and the commit is made once."""
    table = mw.create_table(fast_folder / "conflicts", SCHEMA, "id")
    table.create_index("n", "BTREE")
    with table.writer() as writer:
        for _ in range(2):
            writer.upsert(ROWS)
            writer.flush()
            if not name.startswith("merge"):
                table.merge()
    if name == "snapshot_regions":
        with table.writer() as writer:
            writer.upsert(ROWS)
            writer.flush()
    transactions = Path(table.uri, "_transactions")
    transactions.rename(transactions.with_name("aside"))
    transactions.write_bytes(b"")
    with pytest.raises(mw.OutcomeUnknownError, match="os error"):
        COMMITS[name](table)
    transactions.unlink()
    transactions.with_name("aside").rename(transactions)
    assert mw.open_table(table.uri).to_arrow().equals(ROWS)
    COMMITS[name](table)
    errors = [one.what for one in table.check().of(Severity.ERROR)]
    assert all(str(STRANGER) in what for what in errors), errors
    assert len(errors) == (name == "mark_only")
