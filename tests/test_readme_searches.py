"""The searches that the README shows find what they should."""

from __future__ import annotations

from pathlib import Path

import datafusion
import lance
import pyarrow as pa

import memwal_sql as mw
from tests.test_readme import block

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("body", pa.string()),
        pa.field("lang", pa.string()),
        pa.field("embedding", pa.list_(pa.float32(), 2)),
    ]
)
ROWS = [
    {"id": 1, "body": "a write ahead log", "lang": "en", "embedding": [0.0, 0.9]},
    {"id": 2, "body": "ein Protokoll", "lang": "de", "embedding": [0.1, 0.2]},
    {"id": 3, "body": "a tree of logs", "lang": "en", "embedding": [0.1, 0.3]},
]


def test_every_search_of_the_readme_gives_its_rows(tmp_path: Path) -> None:
    uri = str(tmp_path / "docs")
    lance.write_dataset(pa.Table.from_pylist(ROWS[:1], SCHEMA), uri)
    table = mw.enable(uri, primary_key="id")
    with table.writer() as writer:
        writer.upsert(ROWS[1:])
        session = datafusion.SessionContext()
        mw.register(session, "docs", table)
        statements = [text for text in block("sql").split(";") if text.strip()]
        found = [
            session.sql(statement, q=[0.1, 0.2]).to_arrow_table()["id"].to_pylist()
            for statement in statements
        ]
    assert found == [[3, 1], [1, 3], [1, 3, 2]]
