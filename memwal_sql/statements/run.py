"""`mw.sql`: runs the statements of DataFusion, and those that this package adds."""

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import datafusion
import pyarrow as pa

from exec_nodes.node import draw
from memwal_native import syntax
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.session.provider import general_plans
from memwal_sql.session.session import REQUIRED, session_of
from memwal_sql.statements.allowed import (
    ALL,
    FILES,
    allowed_by,
    check_allowed,
    options_of,
)
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.delete import delete_of, truncate_of
from memwal_sql.statements.changes.insert_into import insert_of
from memwal_sql.statements.changes.merge_into import merge_of
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.update import update_of
from memwal_sql.statements.definitions.alter import run_alter_table
from memwal_sql.statements.definitions.create import refuse_view, run_create_table
from memwal_sql.statements.definitions.drop import run_drop
from memwal_sql.statements.definitions.indexes import run_create_index, run_drop_index
from memwal_sql.statements.procedures import run_call
from memwal_sql.statements.queries.as_of import refuse_as_of
from memwal_sql.statements.queries.datafusion_errors import without_insides
from memwal_sql.statements.queries.distance_operators import with_distances
from memwal_sql.statements.queries.parsed import Statement, parameters_of, parsed
from memwal_sql.statements.queries.places import StatementError, edited, errors_of_calls
from memwal_sql.statements.queries.planning import (
    answer,
    parser_of,
    planned,
    planning_errors,
    refuse_unused,
    scalars,
)
from memwal_sql.statements.queries.query_frames import checked, query_frame
from memwal_sql.statements.queries.settings import check_catalog, check_setting, run_variable
from memwal_sql.statements.transactions import (
    check_inside,
    noting_refused_begin,
    open_transaction,
    run_transaction_word,
)
from memwal_sql.statements.typed_errors import TypedErrorFrame
from memwal_sql.write.coordinator import Description


def sql(
    ctx: datafusion.SessionContext,
    text: str,
    /,
    *,
    options: datafusion.SQLOptions | None = None,
    **parameters: Any,
) -> datafusion.DataFrame:
    """Run one SQL statement in a session, including those that change rows of its MemWAL tables:
    DELETE, UPDATE, TRUNCATE, INSERT, REPLACE and MERGE.

        mw.sql(ctx, "UPDATE t SET n = n + $more WHERE id IN (SELECT id FROM due)", more=1)

    Statements that change rows run once, during this call, and are durable when it returns. The
    frame has the rows of RETURNING, or one row, `count`: the number of rows changed. They read a
    strong snapshot, and lose no concurrent write: rows that another writer changed after they were
    read are read and computed again, with subqueries over the newer state, while the other rows
    keep what was computed. Rows that only meanwhile begin to meet the condition may stay as they
    are.

    Queries are lazy, as in `ctx.sql`; a table that is named several times is read in one snapshot.
    `t VERSION AS OF 7`, `TIMESTAMP AS OF` and `FOR SYSTEM_TIME AS OF` read the past, searches take
    named arguments (`k => 5`), and `<->`, `<=>` and `<#>` are distances. `CALL memwal.merge('t')`
    and its like run the jobs of a table. CREATE, ALTER and DROP define tables of this package where
    the statement says so. Statements between BEGIN and COMMIT are one transaction. All other
    statements are passed to DataFusion unchanged.

    Args:
        ctx: the session in which the tables are registered.
        text: one statement; the manual has their forms.
        parameters: the values of `$name` in the text.

    Raises InvalidCallError, with the place, for a statement that can't be parsed, for an unknown
    parameter, and for a row that several others match; UnsupportedError for a statement that is not
    allowed; KeysExistError for a key that another row has; and the errors of `TableWriter.upsert`.

    Examples:
        >>> context = datafusion.SessionContext()
        >>> table = mw.register(context, "t", table)
        >>> mw.sql(context, "UPDATE t SET degrees = degrees + $by WHERE id = 2", by=1).to_pylist()
        [{'count': 1}]
    """
    if not isinstance(ctx, datafusion.SessionContext):
        raise InvalidCallError(f"{ctx!r} is not a session, such as datafusion.SessionContext()")
    if not isinstance(text, str):
        raise InvalidCallError(f"{text!r} is not a SQL statement as text")
    with errors_of_calls(), noting_refused_begin(ctx, text):
        statement = _statement_of(ctx, text, parameters)
        if parameters:  # a distance may have replaced one by its value
            refuse_unused(parameters.keys() - parameters_of(text))
        return _run(ctx, statement, parameters, options)


def run(
    ctx: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """As `sql`, with parameters that need not all be in the text."""
    with errors_of_calls(), noting_refused_begin(ctx, text):
        return _run(ctx, _statement_of(ctx, text, parameters), parameters)


def _statement_of(
    ctx: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]
) -> Statement:
    parser = parser_of(ctx)
    check_catalog(ctx)
    try:
        return parsed(parser, with_distances(ctx, text, parameters))
    except StatementError:
        scalars(parameters)  # its error says more, for example for a table given as a value
        raise


def _run(
    ctx: datafusion.SessionContext,
    statement: Statement,
    parameters: Mapping[str, Any],
    options: datafusion.SQLOptions | None = None,
) -> datafusion.DataFrame:
    allowed = ALL if options is None else allowed_by(options)
    check_allowed(statement.sql.word, allowed)
    return TypedErrorFrame(_answered(ctx, statement, parameters, allowed).df)


def _answered(
    ctx: datafusion.SessionContext,
    statement: Statement,
    parameters: Mapping[str, Any],
    allowed: Collection[str],
) -> datafusion.DataFrame:
    change = _change(ctx, statement)
    if change is not None:
        check_inside(ctx, statement, is_change=True)
        text = statement.source.original.strip().rstrip(";")
        session = session_of(ctx)
        described = Description(None, session.actor, text, session.atomic == REQUIRED)
        make = partial(Reading, ctx, parameters, change.target)
        with change.target.naming_changed_columns():
            rows = change.run(make, session.isolation, described)
        if (transaction := open_transaction(ctx)) is not None:
            transaction.note(text)
        return answer(ctx, rows)
    word = statement.sql.word
    if word in QUERY_WORDS:
        return query_frame(ctx, statement.source, parameters, options=options_of(allowed))
    if word == "EXPLAIN":
        return _explain(ctx, statement, parameters)
    check_inside(ctx, statement)
    own = _run_own(ctx, statement, parameters)
    if own is not None:
        return own
    refuse_as_of(statement)
    if word == "COPY":
        with planning_errors():
            written = query_frame(ctx, statement.source, parameters, options=FILES)
            return answer(ctx, written.to_arrow_table())
    if word in _INSTEAD:
        raise UnsupportedError(f"mw.sql does not run {word}: {_INSTEAD[word]}")
    if word in _CHANGES:
        remedy = f": ctx.sql(...) runs {word} on others" if word in _PLAIN_CHANGES else ""
        raise UnsupportedError(f"mw.sql changes rows of MemWAL tables only{remedy}")
    _, edits = checked(parser_of(ctx), statement.source)
    check_setting(statement)
    part = statement.sql.part
    text = edited(statement.source.text[: part.end], edits)[part.start :]
    others = planned(ctx, text, parameters, options_of(allowed), immediate=True)
    if others.schema().names:
        return others
    with planning_errors():  # run now: nobody collects a frame without columns
        return answer(ctx, others.to_arrow_table())


def _change(ctx: datafusion.SessionContext, statement: Statement) -> Change | None:
    """The change, if the statement changes rows of a MemWAL table."""
    match statement.sql.tree:
        case syntax.Delete() as tree:
            return delete_of(ctx, statement, tree)
        case syntax.Truncate() as tree:
            return truncate_of(ctx, statement, tree)
        case syntax.Update() as tree:
            return update_of(ctx, statement, tree)
        case syntax.Insert() as tree:
            return insert_of(ctx, statement, tree)
        case syntax.Merge() as tree:
            return merge_of(ctx, statement, tree)
    return None


def _run_own(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run CALL, a definition or the like if it is this package's; None if it is DataFusion's."""
    match statement.sql.tree:
        case syntax.Call() as tree:
            return run_call(ctx, statement, tree, parameters)
        case syntax.Transaction() as tree:
            return answer(ctx, run_transaction_word(ctx, statement, tree))
        case syntax.Variable() as tree:
            rows = run_variable(ctx, statement, tree)
            return None if rows is None else answer(ctx, rows)
        case syntax.CreateTable() as tree:
            return run_create_table(ctx, statement, tree, parameters)
        case syntax.CreateIndex() as tree:
            return run_create_index(ctx, statement, tree, parameters)
        case syntax.DropIndex() as tree:
            return run_drop_index(ctx, statement, tree)
        case syntax.AlterTable() as tree:
            return run_alter_table(ctx, statement, tree)
        case syntax.Named() as tree:
            if statement.sql.word == "DROP":
                return run_drop(ctx, statement, tree)
            refuse_view(ctx, statement, tree)
    return None


def _explain(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """The plan of a query, or of the query that finds the rows that a statement changes."""
    explained = parsed(parser_of(ctx), statement.source.since(statement.sql.explained))
    word, analyzes = explained.sql.word, statement.sql.analyzes
    text = statement.source.text
    options = text[statement.sql.part.start : statement.sql.explained].upper().split()
    is_verbose = "VERBOSE" in options
    change = _change(ctx, explained)
    if change is None and (word in _CHANGES or word in _WITHOUT_PLAN):
        message = "EXPLAIN shows plans of queries, and of changes of rows of MemWAL tables"
        raise explained.unsupported(message, explained.sql.part.start)
    if change is None:
        plan = query_frame(ctx, statement.source, parameters)
        return plan if analyzes else _plan(ctx, plan, is_verbose)
    if analyzes:
        raise UnsupportedError(
            f"EXPLAIN ANALYZE would run the {word}: EXPLAIN shows how it finds its rows"
        )
    start = explained.sql.part.start if explained.sql.ctes is None else explained.sql.ctes.start
    prefix = text[statement.sql.part.start : start]
    query = f"{prefix} {change.target.ctes} {change.query}"
    frame = query_frame(ctx, query, parameters, change.target.strong)
    return _plan(ctx, frame, is_verbose)


def _plan(
    ctx: datafusion.SessionContext, explained: datafusion.DataFrame, is_verbose: bool
) -> datafusion.DataFrame:
    """The rows of EXPLAIN, without the names that tables have only within the statement; if it
    `is_verbose`, of scans of live rows also what would read the files."""
    with planning_errors(), general_plans() if is_verbose else nullcontext(()) as general:
        rows = explained.to_arrow_table()
    kinds, plans = rows["plan_type"].to_pylist(), rows["plan"].to_pylist()
    for name, node in general:
        kinds.append(f"physical_plan of {name} without live rows")
        plans.append(draw(node))
    columns = [kinds, list(map(without_insides, plans))]
    return answer(ctx, pa.table(columns, schema=rows.schema))


class SessionContext(datafusion.SessionContext):
    """A DataFusion session in which `sql` is `mw.sql`: statements that write run at once."""

    def sql(
        self,
        query: str,
        options: datafusion.SQLOptions | None = None,
        param_values: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> datafusion.DataFrame:
        """Run one statement; see `mw.sql`. `param_values` are added to `parameters`."""
        return sql(self, query, options=options, **{**(param_values or {}), **parameters})


QUERY_WORDS = frozenset(("SELECT", "WITH", "(", "FROM"))
_WITHOUT_PLAN = frozenset(("ALTER", "CALL", "CREATE", "DROP", "SET", "RESET"))
# Statements that DataFusion runs over its own tables.
_PLAIN_CHANGES = frozenset(("DELETE", "UPDATE", "INSERT"))
_CHANGES = frozenset(("DELETE", "UPDATE", "TRUNCATE", "MERGE", "INSERT", "REPLACE"))
# Statement of other databases -> what to write instead.
_INSTEAD: Mapping[str, str] = {
    "SAVEPOINT": "a statement that fails leaves what the transaction has staged before",
    "OPTIMIZE": "CALL memwal.compact('t') joins small fragments",
    "VACUUM": "CALL memwal.collect_garbage('t') deletes the files that nobody needs",
}
