"""The queries of a statement; a table that one names more than once is read in one snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import datafusion
import pyarrow as pa

from exec_nodes.evolution.differences import with_ids
from memwal_native.syntax import DistanceOrder, Search, SqlParser, SqlQuery
from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.snapshots import CONSISTENCIES
from memwal_sql.session.clauses import check_faults, check_memberships, check_offsets
from memwal_sql.session.provider import noted_scans
from memwal_sql.session.registered import NAME_PARTS, Registered, TableName, whole_name
from memwal_sql.session.session import session_of
from memwal_sql.statements.queries.as_of import PastState, past_state_of, without
from memwal_sql.statements.queries.distance_orders import nearest_of
from memwal_sql.statements.queries.parsed import Text, parsed_query
from memwal_sql.statements.queries.places import Edit, edited
from memwal_sql.statements.queries.planning import (
    QUERIES,
    parser_of,
    planned,
    planning_errors,
)
from memwal_sql.statements.queries.scans import is_search, reads_mounted, scans
from memwal_sql.statements.queries.schemas import (
    ROWS,
    StatementTable,
    in_schemas,
    schema_name,
)
from memwal_sql.statements.queries.search_calls import arguments_of, searched_table
from memwal_sql.statements.queries.seen_columns import (
    check_known,
    columns_changed,
)
from memwal_sql.statements.queries.snapshots import (
    SharedSnapshot,
    SnapshotTable,
    StatementSnapshots,
    take_together,
)
from memwal_sql.table import Table

# Stands for the table of a search that is not named by a literal.
_UNNAMED: TableName = ("", "", "")
# Names a column that a subquery compares, so that DataFusion can't take it for one of a table.
_ALIAS = ' AS "memwal compared"'


@dataclass(frozen=True, slots=True)
class _Use:
    """A place in a query where a table is read: a reference, or the arguments of a search.

    Attributes:
        alone: whether an alias may follow the reference.
    """

    name: TableName
    past_state: PastState | None
    start: int
    end: int
    alone: bool = False
    call: Search | None = None

    def text(self, schema: str | None, is_named: bool) -> str | None:
        """The new text of a reference, if the table is read from `schema`: under its old name,
        which qualifies its columns; None for no change. `is_named`: an alias keeps the name, for
        `t.*`, too."""
        name = quoted(self.name[-1])
        table = None if schema is None else f"{quoted(schema)}.{name}"
        return f"{table} AS {name}" if table is not None and is_named and self.alone else table

    def table(self, schema: str | None) -> str | None:
        """The name of the searched table, if it is read from `schema`."""
        return None if schema is None else f"{quoted(schema)}.{quoted(self.name[-1])}"


@dataclass(frozen=True, slots=True)
class _Query:
    """A planned query, and the tables that its text names.

    Attributes:
        schemas: the schemas of its tables in one snapshot.
    """

    frame: datafusion.DataFrame
    uses: Sequence[_Use]
    schemas: Collection[str]

    def others(self) -> list[str]:
        """The tables that its plan scans besides these and rows in memory, by a view or another
        name."""
        scanned = Counter(scans(self.frame))
        searches = [scan for scan in scanned.elements() if is_search(scan)]
        known_scans = [
            scan
            for scan in scanned
            if scan.partition(".")[0] in self.schemas or scan.startswith(ROWS)
        ]
        calls = [use for use in self.uses if use.call is not None and use.name != _UNNAMED]
        if len(searches) <= len(calls):
            known_scans += searches
        return [scan for scan in scanned if scan not in known_scans]


def query_frame(
    ctx: datafusion.SessionContext,
    query: str | Text,
    parameters: Mapping[str, Any],
    strong: Mapping[TableName, pa.Schema] = MappingProxyType({}),
    snapshots: StatementSnapshots | None = None,
    options: datafusion.SQLOptions = QUERIES,
) -> datafusion.DataFrame:
    """The result of a query over the tables of a session. Each table is read in one snapshot, taken
    at its first use, or in its state at AS OF; those that it names and reads strongly are read in
    one state, which has every transaction in all of them or in none.

    Args:
        strong: a table that is read in its current state, whatever its consistency in the session,
            with the columns that the query is made for.
        snapshots: the snapshots of the statement that this query is part of.
        options: the kinds of statements that the text may be; queries only by default.

    Raises InvalidCallError for a query that DataFusion can't plan, UnsupportedError if a query of a
    statement may read a table of `strong` in an earlier state.
    """
    session = session_of(ctx)
    registrations = [session.registered(name, ctx) for name in strong]
    uris = frozenset(cast(Table, r.table).uri for r in registrations if r is not None)
    source = query if isinstance(query, Text) else Text(query, query)
    planned_query = _planned(ctx, source, parameters, strong, uris, snapshots, options)
    if snapshots is not None:
        _check_level(planned_query, uris, snapshots)
    return planned_query.frame


def checked(parser: SqlParser, source: Text) -> tuple[SqlQuery, list[Edit]]:
    """What a text for DataFusion names, and the edits with which it is answered right. Raises as
    `parsed_query` does, and UnsupportedError for what DataFusion would answer wrongly."""
    parsed = parsed_query(parser, source)
    check_faults(parsed, merges_piecewise=parser.merges_piecewise)
    check_memberships(parsed.misread)
    check_offsets(source.text)
    return parsed, [Edit(at, at, _ALIAS) for at in parsed.unnamed]


def _planned(
    ctx: datafusion.SessionContext,
    source: Text,
    parameters: Mapping[str, Any],
    strong: Mapping[TableName, pa.Schema],
    uris: Collection[str],
    snapshots: StatementSnapshots | None,
    options: datafusion.SQLOptions = QUERIES,
) -> _Query:
    """The query, with the tables at `uris` in their current state under all of their names."""
    parsed, edits = checked(parser_of(ctx), source)
    query = without(source.text, parsed.pasts)
    uses = list(_uses(ctx, source, parsed, parameters))
    session = session_of(ctx)
    pinned = StatementSnapshots() if snapshots is None else snapshots
    times = Counter((use.name, use.past_state) for use in uses)
    registrations: dict[TableName, Registered | None] = {}
    orders = {order.table: order for order in parsed.distance_orders}
    # Otherwise it reads one state anyway.
    if len(uses) > 1 or snapshots is not None or strong or parsed.pasts or orders:
        registrations = {name: session.registered(name, ctx) for name, _ in times}
    levels: dict[SharedSnapshot, list[str]] = {}
    for (name, past_state), count in times.items():
        if past_state is None and (registration := registrations.get(name)) is not None:
            table = cast(Table, registration.table)
            is_strong = name in strong or table.uri in uris
            level = "strong" if is_strong else registration.consistency
            levels.setdefault(pinned.state(name, table), []).extend([level] * count)
    take_together(state for state, named in levels.items() if "strong" in named)
    schemas: dict[tuple[TableName, PastState | None], str] = {}
    tables: dict[str, StatementTable] = {}
    for name, past_state in times:
        registration = registrations.get(name)
        if registration is None:
            if past_state is not None:
                message = f"{'.'.join(name)} is not a MemWAL table: AS OF is for those"
                raise UnsupportedError(message)
            continue
        table, columns = cast(Table, registration.table), registration.columns
        ids = registration.field_ids
        level = registration.consistency
        state: SharedSnapshot | None = None
        if past_state is None:
            state = pinned.state(name, table)
            used_once = len(levels[state]) == 1 and state.together is None
            if used_once and name not in strong and snapshots is None:
                continue
            level = max(levels[state], key=CONSISTENCIES.index)
            columns = strong.get(name, columns)
            if name not in strong:
                check_known(ctx, registration)
        if (name, past_state) not in pinned.tables:
            if past_state is not None:
                table = past_state.of(table)
                columns, ids = table.schema, table.field_ids
            then = with_ids(columns, ids)
            changed = None if snapshots is None else partial(columns_changed, ctx, name, then)
            is_written = name in strong or table.uri in uris
            pinned.tables[name, past_state] = SnapshotTable(
                table, columns, changed, state, is_written=is_written, field_ids=ids
            )
        schema = schemas[name, past_state] = schema_name()
        tables[schema] = StatementTable(name[-1], pinned.tables[name, past_state], level)
    names = Counter(name[-1] for name, _ in times)
    for use in uses:
        schema_of = schemas.get((use.name, use.past_state))
        order, registration = orders.get(use.start), registrations.get(use.name)
        if order is not None and registration is not None:
            pinned_table = None if schema_of is None else tables[schema_of]
            sorted_table = _sorted(ctx, order, use, registration, pinned_table, parameters)
            if sorted_table is not None:
                schema_of = schema_name()
                tables[schema_of] = sorted_table
        # Schemas tell two tables of one name apart.
        text = use.text(schema_of, names[use.name[-1]] == 1)
        if use.call is not None:
            text = arguments_of(source, use.call, parameters, use.table(schema_of))
        if text is not None:
            edits.append(Edit(use.start, use.end, text))
    with in_schemas(ctx, tables):
        return _Query(planned(ctx, edited(query, edits), parameters, options), uses, tables)


def _sorted(
    ctx: datafusion.SessionContext,
    order: DistanceOrder,
    use: _Use,
    registration: Registered,
    pinned: StatementTable | None,
    parameters: Mapping[str, Any],
) -> StatementTable | None:
    """The table, or the state of it that is `pinned`, for a query that needs only the nearest of
    its rows; None for another query."""
    if pinned is None:
        table, slot = registration.table, session_of(ctx).slot
        if not table.schema.equals(registration.columns) or not registration.has_columns:
            return None
        pinned = StatementTable(use.name[-1], table, registration.consistency, slot)
    approximate = registration.approximate
    nearest = nearest_of(ctx, order, pinned.table.schema, parameters, approximate=approximate)
    return None if nearest is None else replace(pinned, nearest=nearest)


def _check_level(query: _Query, uris: Collection[str], snapshots: StatementSnapshots) -> None:
    """Raise UnsupportedError for a query that reads one of the tables at `uris` by a view that may
    show an earlier state."""
    if not query.others():
        return
    with noted_scans() as scanned, planning_errors():
        query.frame.execution_plan()
    for table, consistency in scanned:
        if getattr(table, "uri", None) not in uris or table in snapshots.tables.values():
            continue
        if isinstance(table, SnapshotTable):
            raise UnsupportedError(
                "this statement reads the table that it changes through a frame of mw.sql, which "
                "has a snapshot of its own: use CREATE VIEW, or write its query into the statement"
            )
        if consistency != "strong":
            raise UnsupportedError(
                "a view that this statement reads shows the table that it changes at the "
                f"consistency {consistency!r}: register it as 'strong' and create the view again, "
                "or write its query into the statement"
            )


def may_read(
    ctx: datafusion.SessionContext, query: str, parameters: Mapping[str, Any], table: Table
) -> bool:
    """Whether a query may read a table in its current state, under any name or by a view. False
    only if the plan shows that it does not."""
    session = session_of(ctx)
    planned_query = _planned(ctx, Text(query, query), parameters, {}, (), StatementSnapshots())
    for use in planned_query.uses:
        registration = session.registered(use.name, ctx) if use.past_state is None else None
        if registration is not None and cast(Table, registration.table).uri == table.uri:
            return True
    with planning_errors():
        return bool(planned_query.others()) and reads_mounted(planned_query.frame)


def _uses(
    ctx: datafusion.SessionContext, source: Text, parsed: SqlQuery, parameters: Mapping[str, Any]
) -> Iterator[_Use]:
    """The tables of a query. Raises InvalidCallError, with the place, for AS OF that does not
    follow a table."""
    pasts = {past.after: past for past in parsed.pasts}
    for start, end, parts, alone in parsed.tables:
        if len(parts) <= NAME_PARTS:
            past = pasts.pop(end, None)
            past_state = None if past is None else past_state_of(ctx, past, parameters)
            yield _Use(whole_name(parts), past_state, start, end, alone)
    for call in parsed.searches:
        yield _Use(searched_table(call) or _UNNAMED, None, call.start, call.end, call=call)
    for past in pasts.values():
        raise source.error("AS OF must follow the name of a table", past.start)
