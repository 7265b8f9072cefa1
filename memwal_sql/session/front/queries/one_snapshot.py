"""The queries of a statement: a table that one names more than once is read in one snapshot."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, Protocol, cast

import datafusion
import pyarrow as pa
from datafusion.catalog import Schema, Table

from exec_nodes.keys.keys import KeyBatch
from exec_nodes.node import Node
from memwal_native import MountedTable, SqlParser, SqlText
from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.lookup import distinct, get_in
from memwal_sql.read.planning import Planner, opened
from memwal_sql.read.snapshots import CONSISTENCIES
from memwal_sql.session.clauses import check_clauses, check_memberships
from memwal_sql.session.front.queries.as_of import (
    AsOf,
    Moment,
    PastOf,
    as_of_clauses,
    check_values,
    without,
)
from memwal_sql.session.front.queries.places import Edit, StatementError, as_before, edited
from memwal_sql.session.front.queries.planning import (
    answer,
    planned,
    planned_as_checked,
    planning_errors,
    unreadable,
)
from memwal_sql.session.front.queries.scans import is_search, reads_mounted, scans
from memwal_sql.session.front.queries.search_calls import SearchCall, search_calls
from memwal_sql.session.front.queries.seen_columns import (
    ColumnsChanged,
    check_columns,
    columns_changed,
)
from memwal_sql.session.front.queries.tokens import Statement, statement_of
from memwal_sql.session.provider import SqlTable, TableProvider, noted_scans
from memwal_sql.session.table_functions import (
    NAME_PARTS,
    Registered,
    TableName,
    search_functions,
    whole_name,
)
from memwal_sql.write.conditional.resolve import ReadChanges
from memwal_sql.write.result import WriteResult
from memwal_sql.write.statement import SNAPSHOT
from planner.model import Snapshot

_numbers = itertools.count()


class WritableTable(SqlTable, PastOf, Protocol):
    """What a statement needs of a table."""

    @property
    def uri(self) -> str:
        """Where it is."""

    @property
    def newest_of(self) -> Hashable | None:
        """The table whose newest state it reads, told from all others; None for a past one."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns."""

    def snapshot(self, consistency: str = "strong") -> Snapshot:
        """The state of the table."""

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys as they are now, whole, in the order asked."""

    def refresh(self) -> None:
        """Look for the newest version, whose columns `schema` is then."""

    def close(self) -> None:
        """Close the writer of statements."""

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> int:
        """Replace all rows, by those of a function where they are made of the table's own."""

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
    ) -> WriteResult:
        """Write what a statement computes from the rows that it reads."""


class State:
    """One state of a table, which the first to read it takes, for all of its names."""

    def __init__(self, table: WritableTable) -> None:
        self._table = table
        self._lock = Lock()
        self._taken: tuple[int, Snapshot] | None = None

    def snapshot(self, consistency: str) -> Snapshot:
        """It; another one only for a query of the statement that asks for more than the first."""
        level = CONSISTENCIES.index(consistency)
        with self._lock:
            if self._taken is None or self._taken[0] < level:
                self._taken = level, self._table.snapshot(consistency)
            return self._taken[1]


class OneSnapshot:
    """A table in the snapshot that the first to read it takes."""

    def __init__(
        self,
        table: WritableTable,
        columns: pa.Schema,
        changed: ColumnsChanged | None = None,
        state: State | None = None,
    ) -> None:
        """`columns` are those that queries are made for; `changed` is the error for others in the
        snapshot, of a statement that runs now; `state` is that of its other names."""
        self.schema = columns
        self.uri = table.uri
        self._changed = changed
        self._state = State(table) if state is None else state

    def planned(self, planner: Planner, consistency: str = "strong", _: object = ()) -> Node:
        """The plan of one of the scans."""
        return opened(planner(self._taken(consistency)))

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys, whole, of a snapshot that is strong if this takes it."""
        snapshot = self._taken("strong")
        return get_in(snapshot, distinct(KeyBatch(keys)), self.schema.names)

    def _taken(self, consistency: str) -> Snapshot:
        snapshot = self._state.snapshot(consistency)
        found = snapshot.info.schema
        if self._changed is not None and not found.equals(self.schema):
            raise self._changed(found)
        return snapshot

    def insert(self, _: pa.Table, columns: pa.Schema) -> int:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"a snapshot of the columns {columns.names} can't be written")


@dataclass(frozen=True, slots=True)
class _Use:
    """A place in a query where a table is read: a reference, or the arguments of a search."""

    name: TableName
    moment: Moment | None
    start: int
    end: int
    call: SearchCall | None = None

    def text(self, schema: str | None, is_named: bool = False) -> str | None:
        """What stands there, if the table is read as the one in a schema of its own: under its
        name, which its columns go by; None for no change. `is_named`: also where the name stands
        for all of them, as in `t.*`."""
        name = quoted(self.name[-1])
        table = None if schema is None else f"{quoted(schema)}.{name}"
        if self.call is not None:
            return self.call.text(table)
        return f"{table} AS {name}" if table is not None and is_named else table


class Pins:
    """The tables that the queries of one statement read, each in the snapshot that the first scan
    of all took.

    Attributes:
        tables: by the names that they have in the session.
        states: by what they are of.
    """

    def __init__(self) -> None:
        self.tables: dict[tuple[TableName, Moment | None], OneSnapshot] = {}
        self.states: dict[Hashable, State] = {}

    def state(self, name: TableName, table: WritableTable) -> State:
        """That of a table under one of its names; a past one has one under each."""
        return self.states.setdefault(table.newest_of or name, State(table))


@dataclass(frozen=True, slots=True)
class _Query:
    """A query that is planned, and what its text says that it reads.

    Attributes:
        schemas: those of its tables in one snapshot.
    """

    frame: datafusion.DataFrame
    uses: Sequence[_Use]
    schemas: Collection[str]

    def others(self) -> list[str]:
        """What it scans besides these, by a view or another name, as the plan has it."""
        left = Counter(scans(self.frame))
        searches = [scan for scan in left.elements() if is_search(scan)]
        own = [scan for scan in left if scan.partition(".")[0] in self.schemas]
        calls = [one for one in self.uses if one.call is not None and one.call.table is not None]
        if len(searches) <= len(calls):
            own += searches
        return [scan for scan in left if scan not in own]


def frame(
    ctx: datafusion.SessionContext,
    query: str,
    parameters: Mapping[str, Any],
    strong: Mapping[TableName, pa.Schema] = MappingProxyType({}),
    pins: Pins | None = None,
    parser: SqlParser | None = None,
) -> datafusion.DataFrame:
    """The result of a query over the tables of a session, each in one snapshot, taken when it is
    first asked for, or as it was where AS OF says so.

    Args:
        strong: a table that is read as it is now, whatever its consistency in the session, with the
            columns that the query is made for.
        pins: of the statement that this query is one of.
        parser: the session's, where it is at hand.

    Raises InvalidCallError for what DataFusion can't plan, UnsupportedError for what it would leave
    out, and where a query of a statement reads a table of `strong` as it may have been earlier.
    """
    functions = search_functions(ctx)
    changed = [one.table for name in strong if (one := functions.registered(name, ctx))]
    uris = frozenset(cast(WritableTable, table).uri for table in changed)
    parser = parser or SqlParser(ctx)
    found = _planned(ctx, query, parameters, strong, uris, pins, parser)
    if pins is not None:
        _check_level(found, uris, pins)
    return found.frame


def _planned(
    ctx: datafusion.SessionContext,
    query: str,
    parameters: Mapping[str, Any],
    strong: Mapping[TableName, pa.Schema],
    uris: Collection[str],
    pins: Pins | None,
    parser: SqlParser,
) -> _Query:
    """The query, with the tables at `uris` as they are now under all of their names."""
    statement, whole = statement_of(query, parser), query
    clauses = as_of_clauses(statement)
    query = without(query, clauses)
    with statement.places():
        parsed = _parsed(ctx, query, statement, parameters)
        if pins is not None:
            check_memberships(parsed)
        uses = list(_uses(ctx, query, parsed, statement, clauses, parameters))
    functions, pinned = search_functions(ctx), Pins() if pins is None else pins
    times = Counter((one.name, one.moment) for one in uses)
    known: dict[TableName, Registered | None] = {}
    if len(uses) > 1 or pins is not None or strong or clauses:  # one scan reads one state anyway
        known = {name: functions.registered(name, ctx) for name, _ in times}
    levels: dict[State, list[str]] = {}
    for (name, moment), count in times.items():
        if moment is None and (one := known.get(name)) is not None:
            table = cast(WritableTable, one.table)
            is_strong = name in strong or table.uri in uris
            level = "strong" if is_strong else one.consistency
            levels.setdefault(pinned.state(name, table), []).extend([level] * count)
    schemas: dict[tuple[TableName, Moment | None], str] = {}
    tables: dict[str, tuple[str, OneSnapshot, str, bool]] = {}
    for name, moment in times:
        found = known.get(name)
        if found is None:
            if moment is not None:
                raise UnsupportedError(f"{'.'.join(name)} is no MemWAL table, which AS OF is for")
            continue
        table, columns, level = cast(WritableTable, found.table), found.columns, found.consistency
        state: State | None = None
        if moment is None:
            state = pinned.state(name, table)
            if len(levels[state]) == 1 and name not in strong and pins is None:
                continue
            level = max(levels[state], key=CONSISTENCIES.index)
            columns = strong.get(name, columns)
            if name not in strong:
                check_columns(found)
        if (name, moment) not in pinned.tables:
            if moment is not None:
                table = moment.of(table)
                columns = table.schema
            changed = None if pins is None else partial(columns_changed, ctx, name, columns)
            pinned.tables[name, moment] = OneSnapshot(table, columns, changed, state)
        schema = schemas[name, moment] = f"memwal$statement{next(_numbers)}"
        tables[schema] = name[-1], pinned.tables[name, moment], level, found.approximate
    edits = []
    names = Counter(name[-1] for name, _ in times)
    for use in uses:
        schema_of = schemas.get((use.name, use.moment))
        # Two tables of one name are told apart by their schemas.
        is_named = schema_of is not None and names[use.name[-1]] == 1
        text = use.text(schema_of, is_named and not _has_alias(query, use, parser))
        if text is not None:
            edits.append(Edit(use.start, use.end, text))
    try:
        with _in_schemas(ctx, tables), as_before(whole, edits):
            check_clauses(parsed)
            return _Query(planned_as_checked(ctx, edited(query, edits), parameters), uses, tables)
    except StatementError as error:
        if error.at is not None:
            check_values(statement)
        raise


def _check_level(query: _Query, uris: Collection[str], pins: Pins) -> None:
    """Raise UnsupportedError for a query that reads one of the tables at `uris` by a view that sees
    it as it may have been earlier."""
    if not query.others():
        return
    with noted_scans() as found, planning_errors():
        query.frame.execution_plan()
    for table, consistency in found:
        if getattr(table, "uri", None) not in uris or table in pins.tables.values():
            continue
        if isinstance(table, OneSnapshot):
            raise UnsupportedError(
                "this statement reads the table that it changes by a frame of mw.sql, which has it "
                "in a snapshot of its own: use CREATE VIEW, or write its query into the statement"
            )
        if consistency != "strong":
            raise UnsupportedError(
                "a view that this statement reads has the table that it changes at the consistency "
                f"{consistency!r}: register it as 'strong' and make the view again, or write its "
                "query into the statement"
            )


def may_read(
    ctx: datafusion.SessionContext, query: str, parameters: Mapping[str, Any], table: WritableTable
) -> bool:
    """Whether a query may read a table as it is now, under whatever name, or by a view: unless its
    plan shows that it does not."""
    functions = search_functions(ctx)
    found = _planned(ctx, query, parameters, {}, (), Pins(), SqlParser(ctx))
    for use in found.uses:
        known = functions.registered(use.name, ctx) if use.moment is None else None
        if known is not None and cast(WritableTable, known.table).uri == table.uri:
            return True
    with planning_errors():
        return bool(found.others()) and reads_mounted(found.frame)


def _parsed(
    ctx: datafusion.SessionContext, query: str, statement: Statement, parameters: Mapping[str, Any]
) -> SqlText:
    parsed = statement.parser.statements(query)
    if parsed is not None:
        return parsed
    list(search_calls(statement, parameters))  # whose errors say more
    try:
        with as_before(statement.text, ()):
            raise unreadable(ctx, query, parameters)
    except StatementError:
        check_values(statement)
        raise


def _uses(
    ctx: datafusion.SessionContext,
    query: str,
    parsed: SqlText,
    statement: Statement,
    clauses: Sequence[AsOf],
    parameters: Mapping[str, Any],
) -> Iterator[_Use]:
    """The tables of a query, which no clause stands in any more.

    Raises InvalidCallError, with the place, for a clause that follows no table.
    """
    left = {one.after: one for one in clauses}
    for start, end, parts in parsed.tables():
        if len(parts) <= NAME_PARTS:
            clause = left.pop(end, None)
            moment = None if clause is None else clause.moment(ctx, parameters)
            yield _Use(whole_name(parts), moment, start, end)
    for call in search_calls(statement, parameters):
        yield _Use(call.table or ("", "", ""), None, call.start, call.end, call)
    if left:
        with as_before(statement.text, ()):
            planned(ctx, query, parameters)  # raises for what is no query
        clause = next(iter(left.values()))
        raise statement.error("AS OF must follow the name of a table", clause.place)


def _has_alias(query: str, use: _Use, parser: SqlParser) -> bool:
    """Whether a query gives a table another name, or can't: none may follow it then."""
    return parser.statements(edited(query, [Edit(use.end, use.end, " AS other")])) is None


@contextmanager
def own_schema(ctx: datafusion.SessionContext) -> Iterator[tuple[Schema, str]]:
    """Within it, the session has a schema of this name, as SQL takes it."""
    name = f"memwal$statement{next(_numbers)}"
    ctx.catalog().register_schema(name, schema := Schema.memory_schema(ctx))
    try:
        yield schema, quoted(name)
    finally:
        ctx.catalog().deregister_schema(name)


@contextmanager
def in_memory(
    ctx: datafusion.SessionContext, tables: Mapping[str, pa.Table]
) -> Iterator[Mapping[str, str]]:
    """Within it, the session has these rows; what each of the tables is called there."""
    with own_schema(ctx) as (schema, schema_name):
        for name, rows in tables.items():
            schema.register_table(name, Table(answer(ctx, rows), ctx))
        yield {name: f"{schema_name}.{quoted(name)}" for name in tables}


@contextmanager
def _in_schemas(
    ctx: datafusion.SessionContext, tables: Mapping[str, tuple[str, OneSnapshot, str, bool]]
) -> Iterator[None]:
    """Within it, the session has these schemas, of a table each, and its searches find them; what
    is planned keeps these."""
    catalog, functions = ctx.catalog(), search_functions(ctx)
    for schema, (name, table, level, approximate) in tables.items():
        mounted = MountedTable(TableProvider(None, table, level, approximate=approximate))
        own = Schema.memory_schema(ctx)
        own.register_table(name, Table(mounted, ctx))
        catalog.register_schema(schema, own)
        whole = f"{quoted(schema)}.{quoted(name)}"
        functions.add(Registered(whole, table, table.schema, level, mounted))
    try:
        yield
    finally:
        for schema, (name, *_) in tables.items():
            functions.remove(f"{quoted(schema)}.{quoted(name)}", ctx)
            catalog.deregister_schema(schema)
