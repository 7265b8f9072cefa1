"""Readers of every kind beside writers, flushes and merges."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import memwal_sql as mw
from tests.model import merging
from tests.model.pairs import SCHEMA
from tests.model.writing import session_of


def test_no_reader_sees_a_batch_half_while_writers_flush_and_merge(tmp_path: Path) -> None:
    """Four key groups in two regions, one counter a group: every read sees each group whole, at or
    after what was acknowledged before the read began, and never going back."""
    uri = str(tmp_path / "table")
    schema = pa.schema([SCHEMA.field("id"), pa.field("g", pa.int64(), False), SCHEMA.field("n")])
    groups = {g: [g * 10 + i for i in range(5)] for g in range(4)}
    start = pa.table(
        {
            "id": [k for keys in groups.values() for k in keys],
            "g": [g for g, keys in groups.items() for _ in keys],
            "n": [0] * 20,
        },
        schema=schema,
    )
    lance.write_dataset(start, uri)
    table = mw.enable(uri, primary_key=["g", "id"], regions=[mw.expression("col0 % 2", "g")])
    acknowledged = dict.fromkeys(groups, 0)
    stop = time.monotonic() + 4.0
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while time.monotonic() < stop and not errors:
                    work()
            except BaseException as error:
                errors.append(error)

        return run

    writer = table.writer(memtable_rows=60)

    def write(mine: list[int]) -> Callable[[], None]:
        def work() -> None:
            for g in mine:
                number = acknowledged[g] + 1
                keys = groups[g]
                writer.upsert(
                    pa.table({"id": keys, "g": [g] * 5, "n": [number] * 5}, schema=schema)
                )
                acknowledged[g] = number

        return work

    def read(handle: Any, how: str) -> Callable[[], None]:
        context = session_of("t", handle)
        last = dict.fromkeys(groups, 0)

        def work() -> None:
            watermark = dict(acknowledged)
            if how == "sql":
                rows = context.sql("SELECT g, n FROM t WHERE n >= 0").to_arrow_table()
            elif how == "get":
                keys = [(g, k) for g, ks in groups.items() for k in ks]
                rows = handle.get(keys, columns=["g", "n"])
            else:
                rows = handle.scan(columns=["g", "n"]).read_all()
            assert rows.num_rows == 20, f"{how}: {rows.num_rows} rows"
            for g in groups:
                seen = {
                    n
                    for group, n in zip(rows["g"].to_pylist(), rows["n"].to_pylist(), strict=True)
                    if group == g
                }
                assert len(seen) == 1, f"{how}: group {g} is a mixture of {sorted(seen)}"
                (number,) = seen
                assert number >= watermark[g], (
                    f"{how}: {number} was read, {watermark[g]} acknowledged"
                )
                assert number >= last[g], f"{how}: {number} after {last[g]}"
                last[g] = number

        return work

    def merge() -> None:
        time.sleep(0.05)
        for region_id in merging.manifests(uri):
            merging.merge_one(uri, region_id, ["g", "id"])

    works = [
        write([0, 1]),
        write([2, 3]),
        merge,
        read(table, "scan"),
        read(table, "sql"),
        read(mw.open_table(uri), "get"),
    ]
    threads = [threading.Thread(target=guarded(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    writer.close()
    assert min(acknowledged.values()) > 3, f"the test was too slow to mean much: {acknowledged}"
