"""What a peer must do, and who they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import pyarrow as pa


class MissingPeerError(Exception):
    """A peer can't be had on this machine."""


class Peer(Protocol):
    """A table with the primary key `id` that was made of some rows.

    Attributes:
        packages: whose versions are told.
        setting: of its writes, in words; the safest that is ordinary.
    """

    packages: tuple[str, ...]
    setting: str

    def upsert(self, rows: pa.Table) -> None:
        """Rows of distinct keys; as durable as the peer makes them when this returns."""

    def aggregate(self) -> tuple[int, float]:
        """`count(*), avg(val)` of all rows."""

    def get(self, key: int) -> list[tuple[int, float, str]]:
        """The rows of a key, from what every other reader would see."""

    def close(self) -> None:
        """Let go of files."""


MakePeer = Callable[[Path, pa.Table], Peer]

# Where each is; imported when it is asked for, as not all are installed everywhere.
PEERS: Mapping[str, str] = {
    "memwal_sql": "benchmarks.peers.ours:MemWal",
    "Lance MemWAL": "benchmarks.peers.mem_wal:LanceMemWal",
    "LanceDB": "benchmarks.peers.lancedb:LanceDb",
    "Delta Lake": "benchmarks.peers.delta:Delta",
    "Iceberg": "benchmarks.peers.iceberg:Iceberg",
    "DuckDB": "benchmarks.peers.duckdb:DuckDb",
    "DuckLake": "benchmarks.peers.ducklake:DuckLake",
    "SQLite": "benchmarks.peers.sqlite:Sqlite",
}


def peer(name: str) -> MakePeer:
    """What makes the table of a peer in a folder that is there, with an index on the key where it
    has one."""
    module, _, class_name = PEERS[name].partition(":")
    return cast(MakePeer, getattr(import_module(module), class_name))
