"""What each of several processes does that write the same regions."""

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.write.turns import TurnSeconds

KEYS = 8


def write(uri: str, name: int, calls: int) -> list[tuple[int, int]]:
    """Upsert rows of all regions, and rows of its own; the keys and values acknowledged."""
    acknowledged: list[tuple[int, int]] = []
    with TurnSeconds.set(local=0.1), mw.open_table(uri) as table, table.writer() as writer:
        for call in range(calls):
            own = 1000 * (name + 1) + call
            keys = [*range(KEYS), own]
            writer.upsert(pa.table({"id": keys, "n": [own] * len(keys)}))
            acknowledged.append((own, own))
            writer.upsert([{"id": 100, "n": 1}], set={"n": "t.n + s.n"})
    return acknowledged
