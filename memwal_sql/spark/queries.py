"""Which query a streaming write belongs to, and which of its batches the table should know."""

from __future__ import annotations

import json
import re

from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.spark.options import Options
from memwal_sql.state.batch_marks import check_id
from memwal_sql.storage.objects.open import open_store
from memwal_sql.table import Table

_COMMITS = "commits"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


def query_of(options: Options) -> str:
    """The id under which the table remembers the query's batches.

    It is option `queryId`, else the id that Spark keeps in the checkpoint folder: a new checkpoint
    is a new query, whose batches begin again at 0. Raises InvalidCallError when neither is there.
    """
    given = options.values.get("queryId")
    if given is not None:
        check_id("queryId", given)
        return given
    checkpoint = options.values.get("checkpointLocation")
    if checkpoint is None:
        raise InvalidCallError(
            'a streaming write needs option("checkpointLocation", folder) or option("queryId", id)'
            ": by it the table knows which batches it has"
        )
    try:
        metadata = json.loads(open_store(checkpoint, options.storage_options).get("metadata"))
        found = str(metadata["id"])
        check_id("id", found)
        return found
    except (MemWalError, ValueError, KeyError, TypeError) as error:
        raise InvalidCallError(
            f"checkpointLocation={checkpoint!r} holds no query id that can be read here ({error}): "
            'name the query with option("queryId", id), and never give another one the same id'
        ) from error


def check_checkpoint(options: Options, table: Table, query: str) -> None:
    """Raise InvalidCallError for a checkpoint whose batches went into another table."""
    checkpoint = options.values.get("checkpointLocation")
    if checkpoint is None:
        return
    store = open_store(checkpoint, options.storage_options)
    names = (meta.path.rpartition("/")[2] for meta in store.list(_COMMITS))
    committed = max((int(name) for name in names if name.isdecimal()), default=-1)
    known = table.last_batch(query)
    if committed > known:
        raise InvalidCallError(
            f"checkpointLocation={checkpoint!r} says that batch {committed} of query {query} is "
            f"committed, but {table.uri} knows no batch of it above {known}: the checkpoint is "
            "that of a query into another table; name a folder of its own"
        )
