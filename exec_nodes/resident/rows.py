"""Rows of a Lance table from columns in memory: in scans, and by address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.arrow import large_columns
from exec_nodes.arrow.filter_rows import Flags, among
from exec_nodes.base.columns import ADDRESS_BYTES, RowAddresses
from exec_nodes.base.tasks import in_background
from exec_nodes.lance.fragments import FRAGMENT_BITS
from exec_nodes.lance.scan import batch_rows, conform, row_bytes
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.columns import Batches, FragmentColumns


class ResidentRows:
    """The rows of one version of a table, which has `count` of them. Columns are kept from the
    second scan on, and once the rows fetched of them have paid for that. Safe to use from several
    threads."""

    def __init__(self, columns: FragmentColumns, count: int) -> None:
        self._columns = columns
        self._count = count

    def scan(self, fragments: Sequence[Any], parts: int, schema: pa.Schema) -> Batches:
        """The columns of `schema`, which are stored, and `_rowaddr` of the rows of `fragments`,
        which are one of this many parts of a scan."""
        kept = [self._columns.whole(fragment, schema) for fragment in fragments]
        tables = [table for table in kept if table is not None]
        numbers = hash(tuple(fragment.fragment_id for fragment in fragments))
        work, pays = f"scan of {numbers}", self._columns.pays
        # Counted for each column, as scans share some of them.
        scanned = [pays(work, [name], 1, 2) for name in schema.names]
        again = bool(tables) or all(scanned)
        most = self._columns.largest // parts if again else 0
        room = most - sum(table.nbytes for table in tables)
        size = batch_rows(schema)
        places = zip(kept, fragments, strict=True)
        for unread, run in groupby(places, key=lambda place: place[0] is None):
            if unread:
                yield from self._columns.read([fragment for _, fragment in run], schema, room)
            else:
                yield from (batch for table, _ in run if table for batch in table.to_batches(size))

    def resident(
        self, fragments: Sequence[Any], schema: pa.Schema
    ) -> list[tuple[pa.Table, RowAddresses]] | None:
        """The columns of `schema`, which are stored, of the rows of `fragments`, and where these
        are; None unless all are kept."""
        kept = []
        for fragment in fragments:
            table = self._columns.whole(fragment, schema)
            if table is None:
                return None
            kept.append((table.select(schema.names), self._columns.addresses(fragment)))
        return kept

    def filtered(self, parts: int, schema: pa.Schema) -> None:
        """Note that Lance applies conditions in a scan of so many parts, as not all columns of
        `schema`, which are stored, are kept. Reads them in the background once that is worth it and
        they are expected to fit."""
        largest = self._columns.largest
        fits = all(row_bytes(pa.schema([field])) * self._count <= largest for field in schema)
        if fits and self._columns.pays("filtered scan", schema.names, 1, 2 * parts):
            in_background(partial(self._columns.keep, self._columns.fragments.values(), schema))

    def at(self, address: int, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema`, all stored, of the row at an address, from Lance where they are
        better fetched; None if the version doesn't have it."""
        fragment = self._columns.fragments.get(address >> FRAGMENT_BITS)
        if fragment is None:
            return None
        table = self.take(np.array([address], np.uint64), schema)
        if table is not None:
            return table if self._columns.has(fragment, address) else None
        table = self._columns.fetch(fragment, address, schema.names)
        if table is not None:
            self.fetched(table)
        return table

    def live(self, addresses: RowAddresses, fragments: Mapping[int, Any]) -> Flags:
        """For each address, whether it is a row of the version within some of its fragments."""
        live = np.zeros(len(addresses), np.bool_)
        numbers = addresses >> np.uint64(FRAGMENT_BITS)
        for number in fragments.keys() & set(numbers.tolist()):
            fragment = fragments[number]
            own = np.flatnonzero(numbers == number)
            if fragment.num_deletions:
                own = own[among(addresses[own], self._columns.addresses(fragment))]
            live[own] = True
        return live

    def take(self, addresses: RowAddresses, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema` of the rows at these addresses, in the order asked; None if they
        are better fetched."""
        stored = self._stored(schema)
        if not stored.names or not len(addresses):
            return None
        numbers = addresses >> np.uint64(FRAGMENT_BITS)
        touched = {number: self._columns.fragments[number] for number in set(numbers.tolist())}
        rows = [np.flatnonzero(numbers == number) for number in touched]
        asked = [
            (fragment, addresses[own]) for fragment, own in zip(touched.values(), rows, strict=True)
        ]
        taken = [self._columns.rows(fragment, own, stored) for fragment, own in asked]
        unread = [
            fragment for (fragment, _), piece in zip(asked, taken, strict=True) if piece is None
        ]
        if unread:
            count = sum(fragment.physical_rows for fragment in unread)
            if count * row_bytes(stored) > Admission.inline or not self._columns.has_kept(stored):
                return None
            self._columns.keep(unread, stored)
            taken = [self._columns.rows(fragment, own, stored) for fragment, own in asked]
        pieces = [piece for piece in taken if piece is not None]
        if len(pieces) < len(touched):
            return None
        if stored is not schema:
            pieces = [conform(piece, schema) for piece in pieces]
        table = pa.Table.from_batches(pieces)
        if len(pieces) > 1:
            table = large_columns.taken(table, np.argsort(np.concatenate(rows)))
        return table

    def fetched(self, table: pa.Table) -> None:
        """Note that rows were fetched from the table; reads their columns whole, in the background,
        once that is worth it and they are expected to fit."""
        stored = self._stored(table.schema)
        if not table.num_rows or not stored.names:
            return
        sizes = [table[name].nbytes // table.num_rows + ADDRESS_BYTES for name in stored.names]
        if max(sizes) * self._count > self._columns.largest:
            return
        if self._columns.pays("fetch", stored.names, Admission.fetch, sum(sizes) * self._count):
            fragments = self._columns.fragments.values()
            in_background(partial(self._columns.keep, fragments, stored))

    def _stored(self, schema: pa.Schema) -> pa.Schema:
        if self._columns.ids.keys() >= set(schema.names):
            return schema
        return pa.schema([field for field in schema if field.name in self._columns.ids])
