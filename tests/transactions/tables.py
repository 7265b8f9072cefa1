"""Small tables that transactions write whole, and what happens between two looks of a read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.read.region import RegionReader
from tests.model.process import as_another_process

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])
KEYS = range(16)


def created(uri: str, regions: str | None = None) -> str:
    """A new table with the rows 0."""
    with mw.create_table(uri, SCHEMA, "id", regions=regions).writer() as writer:
        writer.upsert(rows(0))
    return uri


def rows(value: int, keys: Sequence[int] = KEYS) -> dict[str, Any]:
    """The same value for each key."""
    return {"id": list(keys), "v": [value] * len(keys)}


def values(table: mw.Table) -> set[int]:
    """The values of all keys: one, if the table is read as it was between two transactions."""
    return set(table.to_arrow(["v"])["v"].to_pylist())


def elsewhere(uri: str) -> set[int]:
    """The values that another process reads."""
    with as_another_process():
        return values(mw.open_table(uri))


@contextmanager
def after_look(nth: int, call: Callable[[], object]) -> Iterator[list[RegionReader]]:
    """Within it, reads are overtaken by `call` after the `nth` look at the end of a region; gives
    the regions looked at so far."""
    end_read, looks = RegionReader.end_read, list[RegionReader]()

    def overtaken(reader: RegionReader, *given: Any) -> Any:
        unflushed = end_read(reader, *given)
        looks.append(reader)
        if len(looks) == nth:
            call()
        return unflushed

    with patch.object(RegionReader, "end_read", overtaken):
        yield looks
