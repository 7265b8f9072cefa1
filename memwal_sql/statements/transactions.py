"""BEGIN, COMMIT and ROLLBACK: the transaction of a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import datafusion
import pyarrow as pa

from memwal_native.syntax import SqlParser, Transaction
from memwal_sql.session.session import session_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.transaction.handle import READ_ONLY, OpenTransaction

_NOT_INSIDE = frozenset(("CREATE", "ALTER", "DROP", "CALL"))


def open_transaction(ctx: datafusion.SessionContext) -> OpenTransaction | None:
    """The open transaction of a session."""
    return cast(OpenTransaction | None, session_of(ctx).slot.open)


def run_transaction_word(
    ctx: datafusion.SessionContext, statement: Statement, tree: Transaction
) -> pa.Table:
    """Begin a transaction, or end the open one; the result of COMMIT is its id and the number of
    rows written.

    Raises InvalidCallError for BEGIN within a transaction, and for COMMIT or ROLLBACK outside of
    one; and the errors of `OpenTransaction.commit`, after which nothing is open.
    """
    session, transaction = session_of(ctx), open_transaction(ctx)
    at = statement.sql.part.start
    if tree.action == "BEGIN":
        if transaction is not None:
            raise statement.error("a transaction is open: COMMIT or ROLLBACK ends it", at)
        level = tree.level or session.isolation
        begun = OpenTransaction(actor=session.actor, isolation=level)
        begun.reads_only = tree.reads_only
        session.slot.put(begun)
        session.slot.begin_refused = False
        return pa.table({})
    if transaction is None:
        was_refused, session.slot.begin_refused = session.slot.begin_refused, False
        if was_refused and tree.action == "ROLLBACK":
            return pa.table({})
        why = "the BEGIN was refused, so " if was_refused else ""
        raise statement.error(f"{why}no transaction is open: BEGIN begins one", at)
    session.slot.put(None)
    if tree.action == "ROLLBACK":
        transaction.rollback()
        return pa.table({})
    if transaction.reads_only:
        transaction.rollback()  # it has one state, so that nothing is to be looked at again
        return pa.table({"id": pa.nulls(1, pa.string()), "count": pa.array([0], pa.uint64())})
    result = transaction.commit()
    return pa.table(
        {
            "id": pa.array([result.id or None], pa.string()),
            "count": pa.array([result.rows], pa.uint64()),
        }
    )


@contextmanager
def noting_refused_begin(ctx: datafusion.SessionContext, text: str) -> Iterator[None]:
    """A context in which a text that fails holds changes up if it would begin a transaction."""
    try:
        yield
    except Exception:
        slot = session_of(ctx).slot
        slot.begin_refused |= slot.open is None and _begins(text)
        raise


def _begins(text: str) -> bool:
    try:
        words = [value for _, value, _, _ in SqlParser.tokens(text)]
    except (ValueError, RecursionError):
        words = text.split()
    return bool(words) and words[0].upper() in ("BEGIN", "START")


def check_inside(
    ctx: datafusion.SessionContext, statement: Statement, is_change: bool = False
) -> None:
    """Raise UnsupportedError for a statement that can't be part of the open transaction, and
    InvalidCallError for a change after a BEGIN that was refused."""
    word, transaction = statement.sql.word, open_transaction(ctx)
    if is_change or word in _NOT_INSIDE:
        session_of(ctx).slot.check_begun()
    if is_change and transaction is not None and transaction.reads_only:
        raise statement.unsupported(READ_ONLY, statement.sql.part.start)
    if word in _NOT_INSIDE and transaction is not None:
        message = f"{word} can't be part of a transaction: COMMIT or ROLLBACK first"
        raise statement.unsupported(message, statement.sql.part.start)
