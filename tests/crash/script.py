"""The writes that a doomed process makes: the same for the process and for who examines it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("op", pa.int64()),
        pa.field("text", pa.string()),
    ]
)
KEYS = 12
State = dict[int, int]


@dataclass(frozen=True)
class Write:
    """One call of the writer: rows `ids` get the number `op`, or are deleted, or all is flushed."""

    op: int
    kind: str
    ids: tuple[int, ...] = ()

    def rows(self) -> pa.Table:
        """The batch of an upsert or a delete."""
        if self.kind == "delete":
            return pa.table({"id": pa.array(self.ids, pa.int64())})
        columns = {
            "id": self.ids,
            "op": [self.op] * len(self.ids),
            "text": [f"t{self.op}"] * len(self.ids),
        }
        return pa.table(columns, schema=SCHEMA)

    def apply(self, state: State) -> State:
        """The state after it."""
        if self.kind == "upsert":
            return {**state, **dict.fromkeys(self.ids, self.op)}
        return {n: op for n, op in state.items() if self.kind != "delete" or n not in self.ids}


def writes(seed: int, count: int) -> Iterator[Write]:
    """`count` writes, the same for the same seed. Every batch writes several keys at once, so
    that a half-written one shows."""
    rng = Random(seed)
    for op in range(1, count + 1):
        kind = rng.choices(("upsert", "delete", "flush"), (6, 2, 2))[0]
        ids = () if kind == "flush" else tuple(rng.sample(range(KEYS), rng.randint(2, 6)))
        yield Write(op, kind, ids)


def read(table: Any) -> State:
    """The rows of a scan, and of a lookup of every key."""
    rows = table.scan().read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["op"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "a key was returned twice"
    got = table.get(list(range(KEYS)))
    assert dict(zip(got["id"].to_pylist(), got["op"].to_pylist(), strict=True)) == found
    return found


def base_state() -> State:
    """The rows of the base table before any write: op 0."""
    return dict.fromkeys(range(0, KEYS, 3), 0)


def base_rows() -> pa.Table:
    """The same as a table."""
    ids = list(base_state())
    return pa.table({"id": ids, "op": [0] * len(ids), "text": ["base"] * len(ids)}, schema=SCHEMA)
