"""The identity of a table's MemWAL index, which tells it from one that is made in its place.

LanceDB changes how a table is written by dropping the index and making another
(`unset_lsm_write_spec`, `set_lsm_write_spec`). The merge progress is gone then, and keys may belong
to other regions, so that nothing says which rows are newer. So the schema's metadata say that the
index has an identity, and the index has it, in a map of options that native code keeps and passes
over. It is derived from the incarnation and the region specs, as a caller of LanceDB may take the
map over.

Both are in one file, so that every version tells by itself. Tables from before have neither.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from uuid import UUID

from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.records.table import INCARNATION_KEY
from planner.regions.storage import StoredSpec

IDENTITY_KEY = "memwal_sql:index"
_IN_SCHEMA = b"sha256"
"""How the identity is derived; what a later version may derive otherwise is not compared."""

Metadata = Mapping[bytes, bytes]


def marks(incarnation: UUID) -> dict[bytes, bytes]:
    """The metadata of a table's schema."""
    return {
        INCARNATION_KEY: str(incarnation).encode(),
        IDENTITY_KEY.encode(): _IN_SCHEMA,
    }


def identity(metadata: Metadata | None, specs: Sequence[StoredSpec]) -> dict[str, str]:
    """The options that give an index with these specs the identity; none for a table from before
    it."""
    known = metadata or {}
    if known.get(IDENTITY_KEY.encode()) != _IN_SCHEMA:
        return {}
    text = json.dumps([known.get(INCARNATION_KEY, b"").hex(), *specs], sort_keys=True)
    return {IDENTITY_KEY: hashlib.sha256(text.encode()).hexdigest()}


def is_own(metadata: Metadata | None, details: IndexDetails) -> bool:
    """Whether a version's index may be the one that the table was made with. `metadata` are those
    of its schema."""
    expected = identity(metadata, details.region_specs)
    return expected.items() <= details.writer_config_defaults.items()
