"""Raises a table of version 1, as memwal_sql 0.1 made it, to the version that takes transactions.

Programs of version 1 would show, and flush, rows of transactions that are not committed. So they
are shut out before the first transaction, in this order (`storage/format_versions`):

1. The next record `table` asks for version 2: who opens the table, claims a region or flushes is
   refused from now on.
2. A new base version is committed: readers look at the record when they meet it.
3. Every region is claimed: writers that were open are fenced.
4. Another record says that this is done. Until then nobody begins a transaction, and another
   upgrade does all of it again, which is harmless.
"""

from __future__ import annotations

from dataclasses import replace

from memwal_sql.maintain.claim_all import claim_all
from memwal_sql.maintain.details import change_details
from memwal_sql.storage.records.table import TableRecord, raise_record
from memwal_sql.table import Table


def raise_version(table: Table, record: TableRecord) -> None:
    """Let a table take transactions whose newest record is `record`.

    Raises RetryError if others keep coming in between: run it again.
    """
    context = table.context
    if not record.is_raising:
        record = raise_record(context.store, record, is_done=False)
    context = replace(context, record=record)
    change_details(context, "upgrade", lambda rewrite: rewrite.details)
    base = table.collector.catch_up()
    claim_all(context, base)
    context.store.sync("")
    raise_record(context.store, record, is_done=True)
