"""The transactional store beside an object store that can't put if absent (specification 4).

It remembers, for every object that decides something, who came first. The embedded one is an
SQLite file, for all processes of one machine; `register_commit_log` takes others, such as a
database with conditional writes for several machines.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Protocol

from memwal_sql.errors import InvalidCallError, OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.protocol import check_path

_BUSY_SECONDS = 30.0
_BUSY_PAUSE_SECONDS = 0.005


class CommitState(StrEnum):
    """How far an object has come."""

    PREPARED = "prepared"  # decided; the object itself may not be there yet
    COMMITTED = "committed"  # the object is there
    DELETING = "deleting"  # the object may be there still


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of an object: where its bytes came from, and its state."""

    path: str
    source: str
    state: CommitState


class CommitLog(Protocol):
    """Commits by path, changed one at a time, each change durable when the call returns.

    Raises `StoreUnavailableError` when nothing was changed, `OutcomeUnknownError` when that is
    not known.
    """

    def read(self, path: str) -> Commit | None:
        """What is known of an object."""
        ...

    def swap(self, path: str, old: Commit | None, new: Commit | None) -> bool:
        """Put `new` (None: nothing) in the place of `old` (None: nothing), in one transaction.

        False, and nothing is changed, when something else is there.
        """
        ...

    def unfinished(self) -> list[Commit]:
        """All that are not `COMMITTED`."""
        ...


OpenCommitLog = Callable[[str, str], CommitLog]
_registered: dict[str, OpenCommitLog] = {}


def register_commit_log(scheme: str, opener: OpenCommitLog) -> None:
    """Take `memwal_commit_log` options that begin with `scheme://` to `opener`, which gets the
    option's value and the table's URI. Register it in every process that opens the table."""
    if not scheme.isalnum() or scheme == "sqlite":
        raise InvalidCallError(f"{scheme!r} can't be the scheme of a commit log: choose a word")
    _registered[scheme] = opener


def open_commit_log(value: str, table_uri: str) -> CommitLog:
    """The log that the option `memwal_commit_log` names: a file, `sqlite:///file`, or a log
    registered by `register_commit_log`. Raises InvalidCallError for anything else."""
    scheme, separator, rest = value.partition("://")
    if separator and scheme in _registered:
        return _registered[scheme](value, table_uri)
    if separator and scheme != "sqlite":
        raise InvalidCallError(
            f"memwal_commit_log: nothing is known of {scheme}://; give the path of an SQLite file, "
            "or tell memwal_sql.register_commit_log of it first"
        )
    return SqliteCommitLog(rest if separator else value, table_uri)


class SqliteCommitLog:
    """Commits of one table in an SQLite file, which several tables may share.

    The file must be on a disk of this machine: SQLite's locks do not work on network mounts.
    """

    def __init__(self, file: str, table_uri: str) -> None:
        self._file = os.path.realpath(file)
        self._table = table_uri
        self._connection: sqlite3.Connection | None = None
        self._lock = Lock()
        if not os.path.isdir(os.path.dirname(self._file)):
            raise InvalidCallError(
                f"memwal_commit_log: the folder of {self._file!r} is not there; make it first"
            )
        with self._transaction():
            pass

    def __repr__(self) -> str:
        return f"SqliteCommitLog({self._file!r}, {self._table!r})"

    def read(self, path: str) -> Commit | None:
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT path, source, state FROM commits WHERE table_uri = ? AND path = ?",
                (self._table, path),
            ).fetchall()
        return self._commit(rows[0]) if rows else None

    def swap(self, path: str, old: Commit | None, new: Commit | None) -> bool:
        key = (self._table, path)
        if old is None and new is None:
            return self.read(path) is None
        with self._transaction() as connection:
            if old is None:
                changed = connection.execute(
                    "INSERT OR IGNORE INTO commits VALUES (?, ?, ?, ?)",
                    (*key, *_columns(new)),
                )
            elif new is None:
                changed = connection.execute(
                    "DELETE FROM commits"
                    " WHERE table_uri = ? AND path = ? AND source = ? AND state = ?",
                    (*key, *_columns(old)),
                )
            else:
                changed = connection.execute(
                    "UPDATE commits SET source = ?, state = ?"
                    " WHERE table_uri = ? AND path = ? AND source = ? AND state = ?",
                    (*_columns(new), *key, *_columns(old)),
                )
            return changed.rowcount == 1

    def unfinished(self) -> list[Commit]:
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT path, source, state FROM commits WHERE table_uri = ? AND state <> ?",
                (self._table, CommitState.COMMITTED),
            ).fetchall()
        return [self._commit(row) for row in rows]

    def _commit(self, row: tuple[str, str, str]) -> Commit:
        with decoding(f"the commit log {self._file}", "a commit log"):
            path, source, state = row
            check_path(path)
            check_path(source)
            return Commit(path, source, CommitState(state))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one statement: each is a transaction of its own."""
        with self._lock:
            try:
                yield self._connected()
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorname", None) or type(error).__name__
                text = f"the commit log {self._file}: {error} ({code})"
                if "NOTADB" in code or "CANTOPEN" in code:
                    raise InvalidCallError(f"{text}; name a file that SQLite can use") from None
                if "IOERR" in code:
                    raise OutcomeUnknownError(text) from error
                raise StoreUnavailableError(text) from error

    def _connected(self) -> sqlite3.Connection:
        connection = self._connection
        if connection is None:
            connection = sqlite3.connect(
                self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                _set_up(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            weakref.finalize(self, connection.close)
        return connection


def _set_up(connection: sqlite3.Connection) -> None:
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS commits (table_uri TEXT, path TEXT, source TEXT,"
        " state TEXT, PRIMARY KEY (table_uri, path)) WITHOUT ROWID"
    )
    connection.execute(
        "CREATE INDEX IF NOT EXISTS unfinished ON commits (table_uri)"
        f" WHERE state <> '{CommitState.COMMITTED}'"
    )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file's journal; SQLite does not wait by itself for others who do the same."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_BUSY_PAUSE_SECONDS)
        else:
            return


def _columns(commit: Commit | None) -> tuple[str, ...]:
    return () if commit is None else (commit.source, commit.state.value)
