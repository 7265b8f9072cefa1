"""Marks of the staged batches that are part of a table (protocol rule 24).

A batch is published region by region. The mark of a region is written in the same step as its rows:
the id in its WAL entry, or the manifest that lists its generations; a flush carries the ids of the
entries it takes up into the manifest. When every region has it, a marker of its own says that the
batch is complete, which native code, that knows none of these fields, can't drop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.decoding import number_of
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import Records

# The number of queries whose last batch a region's manifest keeps.
_MOST_QUERIES = 64
_LONGEST_QUERY = 44  # with any batch id, 64 characters
_QUERY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_FOLDER = "batches"


@dataclass(frozen=True, slots=True)
class BatchMark:
    """A batch: of its query, batches come in the order of their ids, from 0."""

    query_id: str
    batch_id: int

    def __post_init__(self) -> None:
        check_id("queryId", self.query_id)
        if self.batch_id < 0:
            raise InvalidCallError(f"batchId={self.batch_id} must be 0 or more")

    def __str__(self) -> str:
        return f"{self.query_id}/{self.batch_id}"


def check_id(name: str, value: str) -> None:
    """Raise InvalidCallError, calling it `name`, unless `value` can be the id of a query or a job:
    folders are named after it."""
    if not isinstance(value, str) or not _QUERY_ID.fullmatch(value):
        raise InvalidCallError(
            f"{name}={value!r} must be up to 128 letters, digits, dots, dashes and underscores, "
            "beginning with a letter or a digit"
        )


def transaction_id(mark: BatchMark) -> str:
    """The id of the transaction that writes a batch."""
    query = mark.query_id
    if len(query) > _LONGEST_QUERY:
        query = sha256(query.encode()).hexdigest()[:_LONGEST_QUERY]
    return f"{query}.{mark.batch_id}"


def decode_mark(text: str | None) -> BatchMark | None:
    """The mark of a WAL entry; None for an entry without one."""
    query_id, slash, batch_id = (text or "").rpartition("/")
    number = number_of(batch_id)
    if not slash or number is None or not _QUERY_ID.fullmatch(query_id):
        return None
    return BatchMark(query_id, number)


def latest_batches(before: Mapping[str, int], new: Mapping[str, int]) -> dict[str, int]:
    """The last batch of each query, the queries heard of last at the end; long silent ones go."""
    batches = {query: batch for query, batch in before.items() if query not in new}
    for query, batch in new.items():
        batches[query] = max(batch, before.get(query, -1))
    return dict(list(batches.items())[-_MOST_QUERIES:])


def last_complete(store: ObjectStore, query_id: str) -> int:
    """The last batch of a query that is complete; -1 when there is none.

    Raises InvalidCallError for an invalid id.
    """
    check_id("queryId", query_id)
    versions = Records(store, f"{_FOLDER}/{query_id}").versions()
    return versions[-1] - 1 if versions else -1


def complete(store: ObjectStore, mark: BatchMark, rows: int) -> None:
    """Note that every region has the batch."""
    records = Records(store, f"{_FOLDER}/{mark.query_id}")
    records.put(mark.batch_id + 1, {"rows": rows})
    records.delete(version for version in records.versions() if version <= mark.batch_id)
