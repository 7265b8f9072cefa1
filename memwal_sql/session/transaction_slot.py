"""The place of a session for its open transaction."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class SessionTransaction(Protocol):
    """A transaction, to those who read tables."""

    def inside(self, table: Any) -> Any:
        """A table as the transaction sees it."""


class TransactionSlot:
    """The transaction of a session, if one is open.

    Providers hold it, so that everything that a session reads, views and plain queries of
    DataFusion too, sees the transaction.
    """

    def __init__(self) -> None:
        self.open: SessionTransaction | None = None

    def inside(self, table: T) -> T:
        """The table as the session sees it now."""
        transaction = self.open
        inside: T = table if transaction is None else transaction.inside(table)
        return inside
