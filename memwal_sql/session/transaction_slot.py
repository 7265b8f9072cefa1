"""The place of a session for its open transaction."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from memwal_native import Flag
from memwal_sql.errors import InvalidCallError

T = TypeVar("T")


class SessionTransaction(Protocol):
    """A transaction, to those who read tables."""

    def inside(self, table: Any) -> Any:
        """A table as the transaction sees it."""


class TransactionSlot:
    """The transaction of a session, if one is open.

    Providers hold it, so that everything that a session reads, views and plain queries of
    DataFusion too, sees the transaction.

    Attributes:
        is_open: set while one is open, for native code.
        begin_refused: whether a BEGIN failed, and no BEGIN, COMMIT or ROLLBACK came after it: what
            its author meant for a transaction must not be written statement by statement.
    """

    def __init__(self) -> None:
        self.open: SessionTransaction | None = None
        self.is_open = Flag()
        self.begin_refused = False

    def put(self, transaction: SessionTransaction | None) -> None:
        """Have an open transaction from now on, or none any more."""
        self.open = transaction
        self.is_open.set(transaction is not None)

    def check_begun(self) -> None:
        """Raise InvalidCallError for a change after a BEGIN that was refused."""
        if self.begin_refused and self.open is None:
            raise InvalidCallError(
                "the last BEGIN was refused, so that this change would not be part of a "
                "transaction: BEGIN again, or ROLLBACK to write each change by itself"
            )

    def inside(self, table: T) -> T:
        """The table as the session sees it now."""
        transaction = self.open
        inside: T = table if transaction is None else transaction.inside(table)
        return inside
