"""Searches as table functions of SQL.

    SELECT id, _distance FROM vector_search('events', 'embedding', [0.1, 0.2], 10, {nprobes: 20})
    WHERE lang = 'en'

A function finds its table by the name under which `register` registered it in the same session.
DataFusion gives the table itself only through a call that would wait for the thread that plans the
query, so the session's tables are noted here; DataFusion can tell whether one still exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import pyarrow as pa
from datafusion import SessionContext, udtf

from exec_nodes.evolution.known import NO_IDS, has_known
from memwal_native import MountedTable, SessionRule, remember
from memwal_native.syntax import SqlParser
from memwal_sql.arguments import unquoted
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.search.options import DEFAULT_K
from memwal_sql.search.request import Search, full_text_search, hybrid_search, vector_search
from memwal_sql.session.provider import SqlTable
from memwal_sql.session.scalar_functions import register_scalar_functions
from memwal_sql.session.search_provider import SearchProvider
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.write.ingest.missing import ERROR
from memwal_sql.write.statement import SNAPSHOT, Isolation

if TYPE_CHECKING:
    from datafusion import Expr

MakeSearch = Callable[[pa.Schema, Sequence["Expr"], Any, Mapping[str, Any]], Search]

_DEFAULTS = ("datafusion", "public")
# The name of a table: catalog, schema and table.
NAME_PARTS = 3
PREFERRED, REQUIRED = "preferred", "required"

TableName = tuple[str, str, str]


@dataclass(frozen=True)
class _Function:
    """A table function: its arguments between the table and `k`, and its search."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    search: MakeSearch


def _vector(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    column = name_literal(arguments[0], "the vector column")
    return vector_search(schema, column, literal(arguments[1], "the query vector"), k, options)


def _text(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    columns = literal(arguments[0], "the text column")
    return full_text_search(schema, columns, literal(arguments[1], "the query text"), k, options)


def _hybrid(
    schema: pa.Schema, arguments: Sequence[Expr], k: Any, options: Mapping[str, Any]
) -> Search:
    return hybrid_search(
        schema,
        name_literal(arguments[0], "the vector column"),
        literal(arguments[1], "the query vector"),
        literal(arguments[2], "the text column"),
        literal(arguments[3], "the query text"),
        k,
        options,
    )


FUNCTIONS = (
    _Function(("vector_search", "lance_vector_search"), ("column", "vector"), _vector),
    _Function(("full_text_search", "lance_fts"), ("column", "query"), _text),
    _Function(
        ("hybrid_search", "lance_hybrid_search"),
        ("vector_column", "vector", "text_column", "query"),
        _hybrid,
    ),
)


class Registered(NamedTuple):
    """A table registered under a name.

    Attributes:
        columns: the columns that the session sees; the table may have others by now.
        mounted: the table in the session; None for a table of a folder, whose current columns the
            session sees.
        field_ids: the ids of `columns`.
    """

    name: str
    table: SqlTable
    columns: pa.Schema
    consistency: str
    mounted: MountedTable | None
    missing: str = ERROR
    approximate: bool = False
    field_ids: Mapping[str, int] = NO_IDS

    @property
    def has_columns(self) -> bool:
        """Whether the table still has the columns that the session sees."""
        table = self.table
        return has_known(table.schema, self.columns, table.field_ids, self.field_ids)

    @property
    def seen(self) -> pa.Schema:
        """The columns that a search sees: those of the session, if the table still has them."""
        return self.columns if self.has_columns else self.table.schema

    def is_in(self, session: SessionContext) -> bool:
        """Whether the session has this table, and no other, under its name."""
        is_there = self.mounted is None or self.mounted.is_mounted()
        return is_there and session.table_exist(self.name)


class TableFolder(Protocol):
    """A folder of tables that a session has as a schema of a catalog."""

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The storage options of its tables."""

    def location(self, name: str) -> str:
        """The place of a table."""

    def registered(self, name: str) -> Registered | None:
        """The current MemWAL table of a name; None if there is none."""

    def mounted(self, name: str) -> MountedTable | None:
        """The table that the session has under a name; None if there is none."""

    def forget(self, name: str) -> None:
        """Note that a table is about to be deleted."""


class SearchFunctions:
    """The table functions of one session, and the tables that they find.

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
        """Let the functions find the tables of a folder under `catalog.schema.name`."""
        self._folders[catalog, schema] = folder

    def folder(self, name: TableName) -> TableFolder | None:
        """The folder that contains, or would contain, the table of a name."""
        return self._folders.get(name[:2])

    def schemas(self, catalog: str) -> list[str]:
        """The schemas of a catalog that are folders of tables."""
        return sorted(schema for name, schema in self._folders if name == catalog)

    def add(self, table: Registered) -> None:
        """Let the functions find a table under its name, for as long as the session has it
        there."""
        self._tables[table_name(table.name)] = table

    def remove(self, name: str, session: SessionContext) -> bool:
        """Undo `add`; true if the session still had the table under this name."""
        registered = self._tables.pop(table_name(name), None)
        return registered is not None and registered.is_in(session)

    def left_behind(self, session: SessionContext) -> list[str]:
        """The names under which the session no longer has its table; the tables are forgotten."""
        gone = [table for table in self._tables.values() if not table.is_in(session)]
        for table in gone:
            del self._tables[table_name(table.name)]
        return [table.name for table in gone]

    def table(self, name: TableName, session: SessionContext) -> tuple[SqlTable, str] | None:
        """The table that the session has under a name, and its consistency; None for another
        table."""
        registration = self.registered(name, session)
        return None if registration is None else (registration.table, registration.consistency)

    def registered(self, name: TableName, session: SessionContext) -> Registered | None:
        """The registration of the table that the session has under a name, as the session's
        transaction sees it; None for another table."""
        folder = self.folder(name)
        if folder is not None:
            registration = folder.registered(name[-1])
        else:
            registration = self._tables.get(name)
            if registration is not None and not registration.is_in(session):
                return None
        if registration is None or self.slot.open is None:
            return registration
        return registration._replace(table=self.slot.inside(registration.table))

    def call(
        self, name: str, function: _Function, *arguments: Expr, session: SessionContext
    ) -> MountedTable:
        """Called by DataFusion when it plans `name(...)` in `session`."""
        try:
            return MountedTable(self._provider(name, function, arguments, session))
        except MemWalError as error:
            remember(error)
            raise

    def _provider(
        self, name: str, function: _Function, arguments: Sequence[Expr], session: SessionContext
    ) -> SearchProvider:
        least = 1 + len(function.arguments)
        if not least <= len(arguments) <= least + 2:
            raise InvalidCallError(
                f"{name} takes (table, {', '.join(function.arguments)}, k, options), of which the "
                f"last two may be left out; {len(arguments)} arguments are given"
            )
        registration = self._find(name_literal(arguments[0], "the table"), session)
        k = literal(arguments[least], "k") if len(arguments) > least else DEFAULT_K
        options = options_literal(arguments[least + 1]) if len(arguments) > least + 1 else {}
        schema = registration.seen
        search = function.search(schema, arguments[1:least], k, options)
        return SearchProvider(name, registration.table, schema, search, registration.consistency)

    def _find(self, text: str, session: SessionContext) -> Registered:
        registration = self.registered(table_name(text), session)
        if registration is None:
            names = sorted(table.name for table in self._tables.values() if table.is_in(session))
            raise InvalidCallError(
                f"{text!r} is not a table that can be searched in this session; there are {names}: "
                "register it with memwal_sql.register(ctx, name, table)"
            )
        return registration


# A session keeps its functions alive.
_sessions: WeakValueDictionary[str, SearchFunctions] = WeakValueDictionary()
_lock = Lock()


def search_functions(ctx: SessionContext) -> SearchFunctions:
    """The functions of a session, registered at the first call, together with the rule by which
    searches refuse conditions that DataFusion would apply to the rows found."""
    with _lock:
        functions = _sessions.get(ctx.session_id())
        if functions is None:
            functions = _sessions[ctx.session_id()] = SearchFunctions()
            ctx.add_physical_optimizer_rule(SessionRule())
            register_scalar_functions(ctx)
            for function in FUNCTIONS:
                for name in function.names:
                    call = partial(functions.call, name, function)
                    ctx.register_udtf(udtf(call, name, with_session=True))
        return functions


def table_name(text: str) -> TableName:
    """Catalog, schema and table of a name that `register` takes."""
    return whole_name(name_parts(text))


def name_parts(text: str) -> tuple[str, ...]:
    """The parts of such a name, as DataFusion's `register_table` reads it: `events`,
    `schema.events`, `"My events"`. Any other text, such as `My events` or `2023-Data`, is one
    part."""
    try:
        tokens = SqlParser.tokens(text)
    except ValueError:  # an unterminated quote
        return (text,)
    names, dots = tokens[::2], tokens[1::2]
    if (
        len(names) != len(dots) + 1
        or len(names) > NAME_PARTS
        or any(kind not in ("word", "quoted") for kind, *_ in names)
        or any(value != "." for _, value, *_ in dots)
    ):
        return (text,)
    return tuple(part if kind == "quoted" else unquoted(part) for kind, part, *_ in names)


def whole_name(parts: Sequence[str]) -> TableName:
    """Catalog, schema and table for up to three given parts."""
    catalog, schema, name = (*_DEFAULTS[: NAME_PARTS - len(parts)], *parts)
    return catalog, schema, name


def literal(argument: Expr, what: str) -> Any:
    """The value of one argument. Raises InvalidCallError unless it is a literal.

    DataFusion has computed `1 + 1` and `make_array(1.0)` by then, but not columns, subqueries and
    parameters without a value.
    """
    try:
        scalar = argument.python_value()
    except TypeError as error:
        raise InvalidCallError(
            f"{what} must be a literal, not {argument.canonical_name()}: put names into single "
            "quotes; table.vector_search, table.full_text_search and table.hybrid_search take "
            "Python values"
        ) from error
    try:
        return scalar.as_py() if isinstance(scalar, pa.Scalar) else scalar
    except (ValueError, OverflowError) as error:
        raise InvalidCallError(f"{what} can't be read: {error}") from error


def name_literal(argument: Expr, what: str) -> str:
    """The value of an argument that is a name."""
    value = literal(argument, what)
    if not isinstance(value, str):
        raise InvalidCallError(f"{what} must be a name in single quotes, not {value!r}")
    return value


def options_literal(argument: Expr) -> Mapping[str, Any]:
    """The options: a struct `{nprobes: 20}`, a map, a JSON object as text, or NULL for none."""
    value = literal(argument, "the options")
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_once)
        except MemWalError:
            raise
        except ValueError as error:
            raise InvalidCallError(
                f"the options {value!r} are not a JSON object: {error}"
            ) from error
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        value = dict(value)  # a map, given as pairs
    if not isinstance(value, Mapping):
        raise InvalidCallError(
            f"the options {value!r} must be a struct, such as {{nprobes: 20}}, or a JSON object"
        )
    return value


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises InvalidCallError for a repeated name."""
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, _ in pairs if [first for first, _ in pairs].count(name) > 1)
        raise InvalidCallError(f"the options name {twice!r} twice")
    return named
