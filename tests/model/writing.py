"""What most tests do to a table, in one call."""

from __future__ import annotations

from typing import Any

import datafusion

import memwal_sql as mw


def upsert_rows(table: mw.Table, rows: Any, **options: Any) -> None:
    """Upsert rows by a writer of their own."""
    with table.writer(**options) as writer:
        writer.upsert(rows)


def flush_rows(table: mw.Table, rows: Any, **options: Any) -> None:
    """Upsert rows by a writer of their own, and flush them."""
    with table.writer(**options) as writer:
        writer.upsert(rows)
        writer.flush()


def merge_rows(table: mw.Table, rows: Any, **options: Any) -> None:
    """Upsert, flush and merge rows."""
    flush_rows(table, rows, **options)
    table.merge()


def session_of(name: str, table: Any, **options: Any) -> datafusion.SessionContext:
    """A session in which the table has this name."""
    session = datafusion.SessionContext()
    mw.register(session, name, table, **options)
    return session
