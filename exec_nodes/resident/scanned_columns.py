"""Columns that are scanned again and again, kept in memory as far as they fit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from exec_nodes.lance.scan import batch_rows
from exec_nodes.resident.columns import Batches, FragmentColumns


class ScannedColumns:
    """Scans of whole fragments of one version of a table.

    Columns are kept from the second scan on: most of what is read once is not read again. Safe to
    use from several threads.
    """

    def __init__(self, columns: FragmentColumns) -> None:
        self._columns = columns

    def scan(self, fragments: Sequence[Any], parts: int, schema: pa.Schema) -> Batches:
        """The columns of `schema`, which are stored, and `_rowaddr` of the rows of `fragments`,
        which are one of so many parts of what is scanned."""
        kept = [self._columns.whole(fragment, schema) for fragment in fragments]
        tables = [table for table in kept if table is not None]
        if tables:
            self._columns.known(schema)  # so they are in use
        numbers = hash(tuple(fragment.fragment_id for fragment in fragments))
        again = bool(tables) or self._columns.pays(f"scan of {numbers}", schema, 1, 2)
        most = self._columns.largest // parts if again else 0
        room = most - sum(table.nbytes for table in tables)
        size = batch_rows(schema)
        places = zip(kept, fragments, strict=True)
        for unread, run in groupby(places, key=lambda place: place[0] is None):
            if unread:
                yield from self._columns.read([fragment for _, fragment in run], schema, room)
            else:
                yield from (batch for table, _ in run if table for batch in table.to_batches(size))
