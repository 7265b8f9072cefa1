"""A table whose live rows answer without a look, and ways to change it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import memwal_sql as mw
from tests import program

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
ROWS = 40


class Case:
    """A table, and a session that asks its live rows."""

    def __init__(self, uri: str, regions: int = 2) -> None:
        self.writer: mw.TableWriter | None = None
        self.table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", regions)])
        self.upsert(range(ROWS), 1)
        self.table.flush()
        self.table.merge()
        self.other = mw.open_table(uri)
        self.ctx = mw.SessionContext()
        mw.register(self.ctx, "t", self.table)
        while not self.is_quick("SELECT * FROM t"):
            pass

    def upsert(self, ids: range | list[int], value: int) -> None:
        rows = {"id": list(ids), "v": [value] * len(ids)}
        if self.writer is not None:
            self.writer.upsert(rows)
            return
        with self.table.writer() as writer:
            writer.upsert(rows)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        rows = self.ctx.sql(query).to_arrow_table()
        return list(zip(*rows.to_pydict().values(), strict=True))

    def value(self, key: int) -> int | None:
        return dict(self.sql(f"SELECT id, v FROM t WHERE id = {key}")).get(key)

    def total(self) -> int:
        ((total,),) = self.sql("SELECT sum(v) AS s FROM t")
        return int(total)

    def is_quick(self, query: str = "SELECT sum(v) FROM t") -> bool:
        """Whether live rows answer a query without a look."""
        assert self.table.answers is not None
        before = self.table.answers.count
        self.sql(query)
        return self.table.answers.count > before


def upsert(case: Case) -> None:
    case.upsert([3], 7)


def upsert_by_an_open_writer(case: Case) -> None:
    """The second time no claim shows it, only an entry."""
    if case.writer is None:
        case.writer = case.table.writer()
    case.writer.upsert({"id": [3], "v": [7]})


def upsert_by_another_handle(case: Case) -> None:
    with case.other.writer() as writer:
        writer.upsert({"id": [3], "v": [7]})


def upsert_by_another_process(case: Case) -> None:
    text = (
        "import sys, memwal_sql as mw\n"
        "with mw.open_table(sys.argv[1]).writer() as w: w.upsert({'id': [3], 'v': [7]})"
    )
    program.run("-c", text, case.table.uri).check_returncode()


def buffer(case: Case) -> None:
    if case.writer is None:
        case.writer = case.table.writer(durable=False, wal_flush_interval_s=3600)
    case.writer.upsert({"id": [3], "v": [7]})
