"""What each of several processes does to the accounts of a bank: money moves, none is made."""

from __future__ import annotations

import time
from contextlib import suppress
from random import Random

import memwal_sql as mw
from memwal_sql.write.turns import TurnSeconds

ACCOUNTS = 40
START = 1000
TOTAL = 3 * ACCOUNTS * START


def _tables(uris: list[str], options: dict[str, str] | None) -> list[mw.Table]:
    return [mw.open_table(uri, storage_options=options) for uri in uris]


def move(uris: list[str], seed: int, seconds: float, options: dict[str, str] | None = None) -> int:
    """Move money within a table, by statements, and between tables, by transactions; the number of
    moves that were committed."""
    random, done = Random(seed), 0
    tables = _tables(uris, options)
    end = time.monotonic() + seconds
    with TurnSeconds.set(local=0.1, remote=0.5):
        while time.monotonic() < end:
            with suppress(mw.RetryError, mw.ReopenError):
                done += _move(random, tables)
        for table in tables:
            with suppress(mw.MemWalError):
                table.close()
    return done


def _move(random: Random, tables: list[mw.Table]) -> int:
    amount, (a, b) = random.randint(1, 9), random.sample(range(ACCOUNTS), 2)
    one, other = random.sample(tables, 2)
    if random.random() < 0.4:
        with mw.transaction(one, other, timeout_s=20) as tx:
            for table, account, sign in ((one, a, -1), (other, b, 1)):
                row = tx.get(table, [account]).to_pylist()[0]
                tx.upsert(table, [{**row, "n": row["n"] + sign * amount}])
        return 1
    kind = random.random()
    if kind < 0.5:
        case = f"CASE id WHEN {a} THEN n - {amount} WHEN {b} THEN n + {amount} ELSE n END"
        with one.writer() as writer:
            writer.update({"n": case}, where=f"id IN ({a}, {b})")
    else:
        with one.writer() as writer:
            writer.upsert([{"id": a, "note": "x"}, {"id": b, "note": "y"}])
            if kind < 0.7:
                writer.flush()
    return 1


def maintain(
    uris: list[str], seed: int, seconds: float, options: dict[str, str] | None = None
) -> None:
    """Merge, flush and collect."""
    random, tables = Random(seed), _tables(uris, options)
    end = time.monotonic() + seconds
    with TurnSeconds.set(local=0.1, remote=0.5):
        while time.monotonic() < end:
            table = random.choice(tables)
            with suppress(mw.RetryError, mw.ReopenError):
                random.choice([table.merge, table.snapshot_regions, table.build_indexes])()
            time.sleep(random.random() / 4)


def sums(uris: list[str], seconds: float, options: dict[str, str] | None = None) -> list[str]:
    """Read all tables in one state again and again; how often, and the sums that are wrong."""
    tables, wrong = _tables(uris, options), list[str]()
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        count += 1
        with suppress(mw.RetryError, mw.ReopenError):
            tx = mw.transaction(*tables)
            total = sum(sum(tx.scan(t, ["n"]).read_all()["n"].to_pylist()) for t in tables)
            if total != TOTAL:
                wrong.append(f"read {count}: all have {total}")
    return [f"{count} reads", *wrong]
