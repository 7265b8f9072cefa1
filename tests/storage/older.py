"""Tables with a MemWAL index of the older format, as its writer would leave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import lance
from lance.dataset import Index

from memwal_sql.storage.base.memwal_index import INDEX_NAME, TYPE_URL
from memwal_sql.storage.proto_gen import older_mem_wal_pb2 as pb


def entry_range(first: int, count: int) -> bytes:
    """The ids of `count` entries as a range."""
    return bytes(pb.EntryIds(range=pb.IdRange(start=first, end=first + count)).SerializeToString())


def mem_wal(region: str, generation: int, state: str, entries: bytes = b"") -> pb.MemWal:
    """One MemWAL of the list; `entries` are the bytes of an `EntryIds`."""
    return pb.MemWal(
        id=pb.MemWalId(region=region, generation=generation),
        mem_table_location=f"memory://{region}",
        wal_location=f"s3://logs/{region}",
        wal_entries=entries,
        state=state,
        owner_id=f"owner-of-{region}",
        last_updated_dataset_version=1,
    )


def message(mem_wals: Sequence[pb.MemWal]) -> bytes:
    """The details of an older index."""
    return bytes(pb.MemWalList(mem_wal_list=mem_wals).SerializeToString())


def make_older(uri: str, rows: Any, mem_wals: Sequence[pb.MemWal]) -> None:
    """A Lance table of `rows` with an older index."""
    dataset = lance.write_dataset(rows, uri)
    index = Index(
        uuid=str(uuid4()),
        name=INDEX_NAME,
        fields=[],
        dataset_version=dataset.version,
        fragment_ids=frozenset(),  # type: ignore[arg-type]
        index_version=0,
        index_details=(TYPE_URL, message(mem_wals)),
    )
    operation = lance.LanceOperation.CreateIndex(new_indices=[index], removed_indices=[])
    lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)
