"""Live rows in random histories: after each look they are the rows of the general path, and of a
dict."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from random import Random

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import StageLimits
from memwal_sql.read.live.settings import Live
from tests.soak import SOAK

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


class History:
    """A table that two handles write in turns, and that a third one reads."""

    def __init__(self, uri: str, seed: int) -> None:
        self.random = Random(seed)
        self.uri = uri
        self.buffered = seed % 3 == 0
        self.table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 3)])
        self.reader = mw.open_table(uri)
        self.ctx = datafusion.SessionContext()
        self.ctx.register_table("t", self.reader)
        self.writer: mw.TableWriter | None = None
        self.rows: dict[int, int] = {}
        self.value = 0

    def ids(self) -> list[int]:
        count = self.random.choice([1, 5, 40])
        return list(dict.fromkeys(self.random.randrange(200) for _ in range(count)))

    def batch(self, ids: list[int]) -> pa.Table:
        self.value += 1000
        return pa.table({"id": ids, "v": [self.value + place for place in range(len(ids))]}, SCHEMA)

    def write(self) -> mw.TableWriter:
        if self.writer is None:
            self.writer = self.table.writer(
                memtable_rows=60, durable=not self.buffered, wal_flush_interval_s=3600
            )
        return self.writer

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    def upsert(self) -> None:
        rows = self.batch(self.ids())
        self.write().upsert(rows)
        self.rows |= dict(zip(*rows.to_pydict().values(), strict=True))

    def delete(self) -> None:
        ids = self.ids()
        self.write().delete(pa.table({"id": ids}))
        for one in ids:
            self.rows.pop(one, None)

    def flush(self) -> None:
        self.write().flush()

    def transaction(self) -> None:
        self.close()
        rows = self.batch(self.ids())
        with mw.transaction(self.table) as open_transaction:
            open_transaction.upsert(self.table, rows)
        self.rows |= dict(zip(*rows.to_pydict().values(), strict=True))

    def bulk(self) -> None:
        self.close()
        rows = self.batch(self.ids())
        limits = StageLimits(generation=1) if self.random.random() < 0.5 else None
        stager = self.table.stager(f"job{self.value}", RowForm(), limits)
        self.table.publisher().publish([stager.stage(rows.to_batches())])
        self.rows |= dict(zip(*rows.to_pydict().values(), strict=True))

    def merge(self) -> None:
        self.table.merge()

    def compact(self) -> None:
        self.table.compact()

    def collect(self) -> None:
        self.table.collect_garbage(older_than=datetime.timedelta(0))

    def plain_lance(self) -> None:
        """Plain Lance sees, and deletes, rows of the base table alone."""
        self.close()
        self.table.flush()
        self.table.merge()
        (one, *_) = self.ids()
        lance.dataset(self.uri).delete(f"id = {one}")
        self.rows.pop(one, None)
        self.reader.refresh()

    def look(self) -> None:
        rows = self.reader.to_arrow().to_pydict()
        assert dict(zip(rows["id"], rows["v"], strict=True)) == self.rows
        for key in self.ids()[:2]:
            found = self.ctx.sql(f"SELECT v FROM t WHERE id = {key}").to_pydict()["v"]
            assert found == [self.rows[key] for key in [key] if key in self.rows]
            assert self.reader.get([key])["v"].to_pylist() == found
        total = self.ctx.sql("SELECT sum(v) AS s, count(*) AS c FROM t").to_pylist()
        assert total == [{"s": sum(self.rows.values()) if self.rows else None, "c": len(self.rows)}]


def play(uri: str, seed: int, *, checked: bool) -> None:
    """Play a history; if `checked`, live rows are compared with the files in each look, too."""
    history = History(uri, seed)
    often = [history.upsert] * 5 + [history.delete] * 2 + [history.flush, history.transaction]
    rarely: list[Callable[[], None]] = [history.bulk, history.merge, history.compact]
    rarely += [history.collect, history.close, history.plain_lance]
    with Live.set(checked=int(checked), enabled=1, least_rows=0, waited=1):
        for _ in range(25):
            history.random.choice(often + rarely)()
            if history.random.random() < 0.6:
                history.look()
        history.look()
    with suppress(mw.MemWalError):
        history.close()


@pytest.mark.parametrize("seed", range(6 * SOAK))
def test_live_rows_are_those_of_the_general_path(seed: int, uri: str) -> None:
    play(uri, seed, checked=bool(seed % 2))


def test_rows_that_a_buffered_writer_has_lost_are_gone(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 1)])
    reader, other = mw.open_table(uri), mw.open_table(uri)
    with Live.set(checked=1, enabled=1, least_rows=0, waited=1):
        writer = table.writer(durable=False, wal_flush_interval_s=3600)
        writer.upsert([{"id": 1, "v": 1}])
        writer.flush()
        assert reader.count_rows() == 1
        writer.upsert([{"id": 2, "v": 2}])
        assert reader.count_rows() == 2
        with other.writer() as second:
            second.upsert([{"id": 3, "v": 3}])
        for call in (writer.flush, writer.close):
            with pytest.raises(mw.FencedError):
                call()
        assert sorted(reader.to_arrow(["id"])["id"].to_pylist()) == [1, 3]
