"""YCSB's core workloads A to F, beside DuckDB and SQLite: single rows, each write synced.

As YCSB has them: records of ten fields of 100 bytes, keys by a Zipfian distribution (0.99) of which
the popular ones lie anywhere, an update sets one field. Scans read up to 100 records by key.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import datafusion
import duckdb
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.result import Result, beside
from benchmarks.support.timing import lower_quartile, seconds
from benchmarks.support.workspace import Workspace, enabled_table

_FIELDS = [f"field{number}" for number in range(10)]
_LENGTH = 100
_LONGEST_SCAN = 100
_THETA = 0.99
_COLUMNS = "id BIGINT PRIMARY KEY, version BIGINT, " + ", ".join(f"{f} VARCHAR" for f in _FIELDS)
_SCAN = "SELECT * FROM records WHERE id >= {} AND id < {} ORDER BY id"
_PARTS = 20  # in which operations are timed


@dataclass(frozen=True, slots=True)
class _Mix:
    """Shares of operations. `latest` reads what was inserted last."""

    title: str
    shares: Mapping[str, float]
    latest: bool = False


_MIXES = {
    "A": _Mix("half updates", {"read": 0.5, "update": 0.5}),
    "B": _Mix("mostly reads", {"read": 0.95, "update": 0.05}),
    "C": _Mix("reads", {"read": 1.0}),
    "D": _Mix("reads of the latest, inserts", {"read": 0.95, "insert": 0.05}, latest=True),
    "E": _Mix("short scans, inserts", {"scan": 0.95, "insert": 0.05}),
    "F": _Mix("half read-modify-writes", {"read": 0.5, "modify": 0.5}),
}


def ycsb(work: Workspace) -> Iterator[Result]:
    """Every workload by all three, in small parts in turns; their answers and, after each
    workload, their rows are the same."""
    rng = np.random.default_rng(7)
    folder, count = work.folder / "ycsb", work.sizes.ycsb_rows
    folder.mkdir(parents=True)
    base = _records(np.arange(count), rng)
    tables: dict[str, _Table] = {"ours": _Ours(folder, base), "DuckDB": _DuckDb(folder, base)}
    tables["SQLite"] = _Sqlite(folder, base)
    for letter, mix in _MIXES.items():
        operations = list(_operations(mix, count, work.sizes.ycsb_operations, rng))
        count += sum(name == "insert" for name, _ in operations)
        times = _timed(tables, operations)
        rows = {name: table.rows() for name, table in tables.items()}
        if any(answer != rows["ours"] for answer in rows.values()):
            raise AssertionError(f"the tables differ after YCSB {letter}")
        for name in list(tables)[1:]:
            line = f"YCSB {letter}, {mix.title}: an operation on {count:,} records"
            yield beside(line, times["ours"], times[name], name)
    for table in tables.values():
        table.close()


def _timed(
    tables: Mapping[str, _Table], operations: Sequence[tuple[str, tuple[Any, ...]]]
) -> dict[str, float]:
    """Seconds of an operation, by table: the lower quartile of some parts of the work."""
    times: dict[str, list[float]] = {name: [] for name in tables}
    for number, part in enumerate(np.array_split(np.arange(len(operations)), _PARTS)):
        if not len(part):
            continue
        answers: dict[str, list[Any]] = {}
        for name in list(tables) if number % 2 else list(tables)[::-1]:
            made = answers[name] = []

            def run(table: _Table = tables[name], made: list[Any] = made) -> None:
                for place in part:  # noqa: B023 (it is called in this round)
                    operation, arguments = operations[place]
                    made.append(getattr(table, operation)(*arguments))

            times[name].append(seconds(run) / len(part))
        if any(answer != answers["ours"] for answer in answers.values()):
            raise AssertionError("the tables answer differently")
    return {name: lower_quartile(measured) for name, measured in times.items()}


def _operations(
    mix: _Mix, count: int, number: int, rng: np.random.Generator
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    weights = 1 / np.arange(1, count + 1) ** _THETA
    ranks = rng.choice(count, number, p=weights / weights.sum())
    keys = count - 1 - ranks if mix.latest else rng.permutation(count)[ranks]
    names = rng.choice(list(mix.shares), number, p=list(mix.shares.values()))
    for name, key in zip(names.tolist(), keys.tolist(), strict=True):
        field, value = str(rng.choice(_FIELDS)), _text(rng)
        if name == "insert":
            yield name, (_records(np.array([count]), rng),)
            count += 1
        elif name == "read":
            yield name, (key,)
        elif name == "scan":
            yield name, (key, int(rng.integers(1, _LONGEST_SCAN + 1)))
        else:
            yield name, (key, field, value)


def _records(ids: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> pa.Table:
    texts = {name: [_text(rng) for _ in ids] for name in _FIELDS}
    return pa.table({"id": ids, "version": np.zeros(len(ids), np.int64), **texts})


def _text(rng: np.random.Generator) -> str:
    return rng.integers(97, 123, _LENGTH, np.uint8).tobytes().decode()


Row = tuple[Any, ...]


class _Table(Protocol):
    """The operations; writes are synced when they return. Rows have `id`, `version`, ten fields."""

    def read(self, key: int) -> list[Row]:
        """The record of a key."""

    def scan(self, key: int, count: int) -> list[Row]:
        """The records of so many keys from this one on, in order."""

    def insert(self, record: pa.Table) -> None:
        """A new record."""

    def update(self, key: int, field: str, value: str) -> None:
        """Set one field."""

    def modify(self, key: int, field: str, value: str) -> None:
        """Read a record, and set a field and the next version if nobody wrote it meanwhile."""

    def rows(self) -> list[Row]:
        """All records, by key."""

    def close(self) -> None:
        """Let go of files."""


class _Ours:
    """`get`, `upsert` of one column, which keeps the others, and a conditional one."""

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._table = enabled_table(folder / "ours", base)
        self._writer = self._table.writer()
        self._context = datafusion.SessionContext()
        mw.register(self._context, "records", self._table)

    def read(self, key: int) -> list[Row]:
        return _tuples(self._table.get([key]))

    def scan(self, key: int, count: int) -> list[Row]:
        return _tuples(self._context.sql(_SCAN.format(key, key + count)).to_arrow_table())

    def insert(self, record: pa.Table) -> None:
        self._writer.insert(record)

    def update(self, key: int, field: str, value: str) -> None:
        self._writer.upsert({"id": [key], field: [value]})

    def modify(self, key: int, field: str, value: str) -> None:
        version = self._table.get([key])["version"][0].as_py()
        row = {"id": [key], "version": [version + 1], field: [value]}
        if self._writer.upsert(row, when="t.version + 1 = s.version").rows != 1:
            raise AssertionError("nobody else writes")

    def rows(self) -> list[Row]:
        return _tuples(self._table.to_arrow().sort_by("id"))

    def close(self) -> None:
        self._writer.close()


class _DuckDb:
    """A database file; a transaction is one statement, or BEGIN to COMMIT."""

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._connection: Any = duckdb.connect(folder / "records.duckdb")
        self._connection.execute(f"CREATE TABLE records ({_COLUMNS})")
        self._connection.execute("INSERT INTO records FROM base")

    def read(self, key: int) -> list[Row]:
        return self._all("SELECT * FROM records WHERE id = ?", key)

    def scan(self, key: int, count: int) -> list[Row]:
        return self._all(_SCAN.format("?", "?"), key, key + count)

    def insert(self, record: pa.Table) -> None:
        row = _tuples(record)[0]
        self._all(f"INSERT INTO records VALUES ({', '.join('?' * len(row))})", *row)

    def update(self, key: int, field: str, value: str) -> None:
        self._all(f"UPDATE records SET {field} = ? WHERE id = ?", value, key)

    def modify(self, key: int, field: str, value: str) -> None:
        self._begin()
        version = self._all("SELECT version FROM records WHERE id = ?", key)[0][0]
        text = f"UPDATE records SET {field} = ?, version = ? WHERE id = ?"
        self._all(text, value, version + 1, key)
        self._connection.execute("COMMIT")

    def rows(self) -> list[Row]:
        return self._all("SELECT * FROM records ORDER BY id")

    def close(self) -> None:
        self._connection.close()

    def _begin(self) -> None:
        self._connection.execute("BEGIN")

    def _all(self, text: str, *values: Any) -> list[Row]:
        return self._connection.execute(text, values).fetchall()  # type: ignore[no-any-return]


class _Sqlite(_DuckDb):
    """The same with a write-ahead log that is synced."""

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._connection = sqlite3.connect(folder / "records.sqlite", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        columns = _COLUMNS.replace("BIGINT PRIMARY", "INTEGER PRIMARY")  # its row id
        self._connection.execute(f"CREATE TABLE records ({columns})")
        marks = ", ".join("?" * base.num_columns)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(f"INSERT INTO records VALUES ({marks})", _tuples(base))
        self._connection.execute("COMMIT")

    def _begin(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")


def _tuples(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
