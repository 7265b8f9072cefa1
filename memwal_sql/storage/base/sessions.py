"""Lance's sessions, which keep metadata of files and parts of indexes.

A session lets go of nothing before it holds gigabytes, not even of files that are gone. So each
generation has one of its own, which goes with it, and the base table begins a new one when what a
stream of merges has left behind is most of what its session holds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import lance

# Lance exports it only as an argument of `lance.Session`.
from lance.lance import _ObjectStoreRegistry  # type: ignore[attr-defined]

from exec_nodes.base.thresholds import Thresholds


class SessionChecks(Thresholds):
    """Versions from one look at the session to the next. As Lance looks at all that it holds, a
    look takes a millisecond for 30 MB; and in that many versions queries have read what they need.
    """

    versions = 16
    left_behind_bytes = 64 * 1024 * 1024


def new_session() -> Any:
    """A session that holds nothing; connections to stores are shared by those of a process."""
    return lance.Session(store_registry=_stores())  # type: ignore[attr-defined, call-arg]


class BaseSession:
    """The session under which new versions of one base table are opened.

    What queries need of a version has to be read again in a new session. So one begins only when
    the last one holds twice as much as after its first versions, and 64 MB: however large the
    indexes of a table are, they are read again seldom.
    """

    def __init__(self, session: Any) -> None:
        """`session` is that of the first version."""
        self._session = session
        self._versions = 0
        self._needed: int | None = None

    @property
    def session(self) -> Any:
        return self._session

    def replaced(self) -> None:
        """Note that a newer version was opened. Its predecessors keep the session they have."""
        self._versions += 1
        if self._versions % SessionChecks.versions:
            return
        size = self._session.size_bytes()
        if self._needed is None:
            self._needed = size
        elif size > 2 * self._needed + SessionChecks.left_behind_bytes:
            self._session, self._needed = new_session(), None


@cache
def _stores() -> Any:
    return _ObjectStoreRegistry()
