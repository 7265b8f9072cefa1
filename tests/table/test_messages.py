"""What wrong calls are told: the value, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "n": pa.int32(),
        "name": pa.string(),
        "v": pa.list_(pa.float32(), 2),
        "j": pa.json_(),
        "d": pa.date32(),
    }
)


@dataclass(frozen=True)
class Site:
    """A table `t`, and a session that has it."""

    folder: Path
    table: mw.Table
    ctx: datafusion.SessionContext

    def upsert(self, **values: Any) -> None:
        row = {"id": 1, "n": 1, "name": "a", "v": None, "j": None, "d": None, **values}
        with self.table.writer() as writer:
            writer.upsert([row])

    def rows(self, *rows: Any) -> None:
        with self.table.writer() as writer:
            writer.upsert(list(rows))

    def sql(self, text: str, **parameters: Any) -> None:
        mw.sql(self.ctx, text.replace("FOLDER", str(self.folder)), **parameters).to_pylist()

    def file(self) -> str:
        path = self.folder / "day.parquet"
        path.write_bytes(b"PAR1")
        return str(path)


MERGE = "MERGE INTO t USING {} AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)"
CALLS: tuple[tuple[Callable[[Site], object], tuple[str, ...]], ...] = (
    (lambda s: s.upsert(n="seven"), ("column 'n': 'seven' is not an int32",)),
    (lambda s: s.upsert(n=1.5), ("column 'n': 1.5 is not an int32: ",)),
    (lambda s: s.upsert(n=2**40), ("column 'n': 1099511627776 is not an int32: ", "too large")),
    (lambda s: s.upsert(name=5), ("column 'name': 5 is not a string: ",)),
    (lambda s: s.upsert(v=["x", 1]), ("column 'v': 'x' in a fixed_size_list", "is not a float")),
    (lambda s: s.upsert(j="{"), ("column 'j': '{' in row 0 is not JSON: ",)),
    (lambda s: s.upsert(d="soon"), ("'soon' is not a date32[day]: give a date, such as '2026-",)),
    (lambda s: s.upsert(d=20_000), ("a number is not a time here: give a datetime.date",)),
    (lambda s: s.rows({"id": "8"}), ("'8' is not an int64: a text is not a number", "int('8')")),
    (lambda s: s.sql("UPDATE t SET d = 'soon'"), ("column 'd': 'soon' is not a date32",)),
    (lambda s: s.rows({"id": 1}, None), ("row 1 is None",)),
    (lambda s: s.rows({"id": 1}, 5), ("row 1 is int",)),
    (lambda s: s.table.to_arrow(filter='name = "a"'), ("texts in single quotes, as 'a'",)),
    (lambda s: s.table.to_arrow(filter="nam = 1"), ("Valid fields are id, n, name",)),
    (lambda s: s.sql('SELECT * FROM t WHERE name = "a"'), ("Texts are in single quotes: 'a'",)),
    (lambda s: s.sql("SELECT id FROM t ORDER BY v <-> [1]"), ("must have the same length",)),
    (lambda s: mw.open_table(s.file()), ("day.parquet is a file, and a table is a folder",)),
    (lambda s: mw.open_table(f"{s.file()}/x"), ("part of the path", "is a file")),
    (
        lambda s: mw.create_table(s.table.uri, SCHEMA, primary_key="id"),
        ("is a table already: open_table opens it",),
    ),
    (
        lambda s: s.sql("ALTER TABLE t ALTER COLUMN n TYPE TEXT"),
        ("'n' is int32, and can't become string", "update(...), and drop this"),
    ),
    (
        lambda s: s.sql("ALTER TABLE t ADD COLUMN q INT DEFAULT 1"),
        ("['q'] would be null in existing rows", "SET DEFAULT", "UPDATE"),
    ),
    (
        lambda s: s.sql("CREATE TABLE x (id SERIAL PRIMARY KEY) LOCATION 'FOLDER/x'"),
        ("SERIAL is not supported: every row must come with its key",),
    ),
    (lambda s: s.sql("DELETE FROM t WHERE n = 1 LIMIT 1"), ("WHERE id IN (SELECT", "LIMIT")),
    (lambda s: s.sql("UPDATE t SET n = 1 LIMIT 1"), ("WHERE id IN (SELECT", "LIMIT")),
    (
        lambda s: s.sql(MERGE.format("'day.parquet'")),
        ("not found", "ctx.register_parquet(name, path)"),
    ),
    (
        lambda s: s.sql(MERGE.format("days")),
        ("mw.register(ctx", "ctx.register_parquet(name, path)"),
    ),
    (
        lambda s: s.sql(MERGE.format("$src"), src=pa.table({"id": [4]})),
        ("$src", "Table", "ctx.from_arrow(rows, name='src')"),
    ),
    (
        lambda s: s.sql(MERGE.format("(VALUES (4), (4))").replace("AS s", "AS s(id)")),
        ("several rows would get the same key", "[4]", "keep one row a key"),
    ),
)
# What says nothing to a user: names within the package, places in Lance's sources, other doors.
NEVER = ("scanned.", "LanceError", ".rs:", " is none", "memwal load", "pyarrow.Table\n")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, primary_key="id")
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    made = Site(tmp_path, table, ctx)
    made.upsert(v=[1.0, 2.0])
    return made


def test_a_wrong_call_is_told_what_to_do(site: Site) -> None:
    before = site.table.to_arrow()
    for number, (call, parts) in enumerate(CALLS):
        with pytest.raises(mw.InvalidCallError) as caught:
            call(site)
        message = str(caught.value)
        assert [part for part in parts if part not in message] == [], (number, message)
        assert [part for part in NEVER if part in message] == [], (number, message)
        assert len(message) < 600, (number, message)
    assert site.table.to_arrow().equals(before)
    site.table.close()
