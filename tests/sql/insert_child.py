"""A process of its own that inserts what it is told."""

from __future__ import annotations

from typing import Any

import datafusion

import memwal_sql as mw


def insert_now_and_then(uri: str, pipe: Any) -> None:
    """Insert the ids that come through the pipe, one after another, until it is closed."""
    session = datafusion.SessionContext()
    mw.register(session, "t", mw.open_table(uri))
    while True:
        try:
            number = pipe.recv()
        except EOFError:
            return
        try:
            session.sql(f"INSERT INTO t VALUES ({number}, NULL, NULL)").collect()
        except Exception as error:
            pipe.send(str(error))
        else:
            pipe.send("done")
