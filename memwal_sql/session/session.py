"""A session of DataFusion with tables of this package.

DataFusion gives a table itself only through a call that would wait for the thread that plans the
query, so the session's tables are noted here; DataFusion can tell whether one still exists.
"""

from __future__ import annotations

from threading import Lock
from weakref import WeakValueDictionary

from datafusion import SessionContext

from memwal_native import SessionRule
from memwal_sql.errors import InvalidCallError
from memwal_sql.session.provider import SqlTable
from memwal_sql.session.registered import Registered, TableFolder, TableName, table_name
from memwal_sql.session.scalar_functions import register_scalar_functions
from memwal_sql.session.table_functions import register_table_functions
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.write.statement import SNAPSHOT, Isolation

PREFERRED, REQUIRED = "preferred", "required"


class Session:
    """The tables of one session of DataFusion, and what is set for its statements.

    Attributes:
        isolation: the isolation of the session's statements that change rows.
        actor: who they are done for; kept in `memwal_sql.history`.
        atomic: `REQUIRED` refuses those that can't be one transaction.
        slot: has the session's transaction, while one is open.
    """

    def __init__(self) -> None:
        self.isolation: Isolation = SNAPSHOT
        self.actor: str | None = None
        self.atomic = PREFERRED
        self.slot = TransactionSlot()
        self._tables: dict[TableName, Registered] = {}
        self._folders: dict[tuple[str, str], TableFolder] = {}

    def add_folder(self, catalog: str, schema: str, folder: TableFolder) -> None:
        """Let searches and statements find the tables of a folder under `catalog.schema.name`."""
        self._folders[catalog, schema] = folder

    def folder(self, name: TableName) -> TableFolder | None:
        """The folder that contains, or would contain, the table of a name."""
        return self._folders.get(name[:2])

    def schemas(self, catalog: str) -> list[str]:
        """The schemas of a catalog that are folders of tables."""
        return sorted(schema for name, schema in self._folders if name == catalog)

    def add(self, table: Registered) -> None:
        """Let searches and statements find a table under its name, for as long as the session has
        it there."""
        self._tables[table_name(table.name)] = table

    def remove(self, name: str, ctx: SessionContext) -> bool:
        """Undo `add`; true if the session still had the table under this name."""
        registered = self._tables.pop(table_name(name), None)
        return registered is not None and registered.is_in(ctx)

    def left_behind(self, ctx: SessionContext) -> list[str]:
        """The names under which the session no longer has its table; the tables are forgotten."""
        gone = [table for table in self._tables.values() if not table.is_in(ctx)]
        for table in gone:
            del self._tables[table_name(table.name)]
        return [table.name for table in gone]

    def table(self, name: TableName, ctx: SessionContext) -> tuple[SqlTable, str] | None:
        """The table that the session has under a name, and its consistency; None for another
        table."""
        registration = self.registered(name, ctx)
        return None if registration is None else (registration.table, registration.consistency)

    def registered(self, name: TableName, ctx: SessionContext) -> Registered | None:
        """The registration of the table that the session has under a name, as the session's
        transaction sees it; None for another table."""
        folder = self.folder(name)
        if folder is not None:
            registration = folder.registered(name[-1])
        else:
            registration = self._tables.get(name)
            if registration is not None and not registration.is_in(ctx):
                return None
        if registration is None or self.slot.open is None:
            return registration
        return registration._replace(table=self.slot.inside(registration.table))

    def searched(self, text: str, ctx: SessionContext) -> Registered:
        """The registration of a table that a search names. Raises InvalidCallError for another
        table."""
        registration = self.registered(table_name(text), ctx)
        if registration is None:
            names = sorted(table.name for table in self._tables.values() if table.is_in(ctx))
            raise InvalidCallError(
                f"{text!r} is not a table that can be searched in this session; there are {names}: "
                "register it with memwal_sql.register(ctx, name, table)"
            )
        return registration


# The table functions of a session keep its object alive.
_sessions: WeakValueDictionary[str, Session] = WeakValueDictionary()
_lock = Lock()


def session_of(ctx: SessionContext) -> Session:
    """What this package knows of a session. The first call registers the functions, and the rule by
    which searches refuse conditions that DataFusion would apply to the rows found."""
    with _lock:
        session = _sessions.get(ctx.session_id())
        if session is None:
            session = _sessions[ctx.session_id()] = Session()
            ctx.add_physical_optimizer_rule(SessionRule())
            register_scalar_functions(ctx)
            register_table_functions(ctx, session.searched)
        return session
