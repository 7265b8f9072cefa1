"""`mw.sql`: the statements of a session, with those that DataFusion has not."""

from collections.abc import Collection, Mapping
from typing import Any

import datafusion

from memwal_native import syntax
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.allowed import (
    ALL,
    FILES,
    allowed_by,
    check_allowed,
    options_of,
)
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.delete import delete, truncate
from memwal_sql.statements.changes.insert_into import insert
from memwal_sql.statements.changes.merge_into import merge
from memwal_sql.statements.changes.update import update
from memwal_sql.statements.definitions.alter import altered
from memwal_sql.statements.definitions.create import created, refuse_view
from memwal_sql.statements.definitions.drop import dropped
from memwal_sql.statements.definitions.indexes import created_index, dropped_index
from memwal_sql.statements.frame import Frame
from memwal_sql.statements.procedures import called
from memwal_sql.statements.queries.as_of import refuse_as_of
from memwal_sql.statements.queries.datafusion_errors import without_insides
from memwal_sql.statements.queries.distance_operators import with_distances
from memwal_sql.statements.queries.one_snapshot import frame
from memwal_sql.statements.queries.parsed import Statement, parameters_of, parsed, parsed_query
from memwal_sql.statements.queries.places import StatementError, errors_of_calls
from memwal_sql.statements.queries.planning import (
    answer,
    parser_of,
    planned,
    planning_errors,
    refuse_unused,
    scalars,
)
from memwal_sql.statements.queries.settings import check_catalog, run_variable


def sql(
    ctx: datafusion.SessionContext,
    text: str,
    /,
    *,
    options: datafusion.SQLOptions | None = None,
    **parameters: Any,
) -> datafusion.DataFrame:
    """Run one SQL statement in a session, with all that change rows of its MemWAL tables: DELETE,
    UPDATE, TRUNCATE, INSERT, REPLACE and MERGE.

        mw.sql(ctx, "UPDATE t SET n = n + $more WHERE id IN (SELECT id FROM due)", more=1)

    These run when this is called, once, and are durable when it returns; the frame has what
    RETURNING asks for, or one row, `count`: how many rows were changed. They read a strong
    snapshot. No write of a row that others make meanwhile is lost: rows that somebody wrote after
    they were read are read and computed again, with subqueries over the newer state, while the
    other rows keep what they got. Rows that begin to meet the condition meanwhile may stay as they
    are.

    Queries are lazy, as `ctx.sql` has them; one that names a table several times reads it in one
    snapshot. `t VERSION AS OF 7`, `TIMESTAMP AS OF` and `FOR SYSTEM_TIME AS OF` read the past,
    searches take named arguments (`k => 5`), and `<->`, `<=>` and `<#>` are distances.
    `CALL memwal.merge('t')` and its like run the jobs of a table. CREATE, ALTER and DROP are for
    tables of this package where they say so. All other statements are handed to DataFusion as they
    are.

    Args:
        ctx: the session in which the tables were registered.
        text: one statement; the manual has their forms.
        parameters: the values of `$name` in the text.

    Raises InvalidCallError, with the place, for a statement that can't be read, for a parameter
    that it has not, and for a row that several others match; UnsupportedError for a statement that
    is not allowed; KeysExistError for a key that another row has; and what `TableWriter.upsert`
    raises.
    """
    if not isinstance(ctx, datafusion.SessionContext):
        raise InvalidCallError(f"{ctx!r} is not a session, as datafusion.SessionContext() is")
    if not isinstance(text, str):
        raise InvalidCallError(f"{text!r} is not a SQL statement, as text")
    with errors_of_calls():
        statement = _statement_of(ctx, text, parameters)
        if parameters:  # which a distance may have written out of the statement
            refuse_unused(parameters.keys() - parameters_of(text))
        return _run(ctx, statement, parameters, options)


def run(
    ctx: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """The same with parameters of which the text may have only some."""
    with errors_of_calls():
        return _run(ctx, _statement_of(ctx, text, parameters), parameters)


def _statement_of(
    ctx: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]
) -> Statement:
    parser = parser_of(ctx)
    check_catalog(ctx)
    try:
        return parsed(parser, with_distances(ctx, text, parameters))
    except StatementError:
        scalars(parameters)  # whose errors say more, as of a table that is given as a value
        raise


def _run(
    ctx: datafusion.SessionContext,
    statement: Statement,
    parameters: Mapping[str, Any],
    options: datafusion.SQLOptions | None = None,
) -> datafusion.DataFrame:
    allowed = ALL if options is None else allowed_by(options)
    check_allowed(statement.sql.word, allowed)
    return Frame(_answered(ctx, statement, parameters, allowed).df)


def _answered(
    ctx: datafusion.SessionContext,
    statement: Statement,
    parameters: Mapping[str, Any],
    allowed: Collection[str],
) -> datafusion.DataFrame:
    change = _change(ctx, statement)
    if change is not None:
        with change.target.same_columns():
            return answer(ctx, change.run(ctx, parameters))
    word = statement.sql.word
    if word in QUERY_WORDS:
        return frame(ctx, statement.source, parameters)
    if word == "EXPLAIN":
        return _explain(ctx, statement, parameters)
    done = _done(ctx, statement, parameters)
    if done is not None:
        return done
    refuse_as_of(statement)
    if word == "COPY":
        with planning_errors():
            written = frame(ctx, statement.source, parameters, options=FILES)
            return answer(ctx, written.to_arrow_table())
    if word in _INSTEAD:
        raise UnsupportedError(f"mw.sql does not run {word}: {_INSTEAD[word]}")
    if word in _CHANGES:
        remedy = f": ctx.sql(...) runs {word} of others" if word in _PLAIN_CHANGES else ""
        raise UnsupportedError(f"mw.sql changes rows of MemWAL tables alone{remedy}")
    parsed_query(parser_of(ctx), statement.source)  # refuses what nests too deep
    others = planned(ctx, statement.sql.part.text, parameters, options_of(allowed))
    if others.schema().names:
        return others
    with planning_errors():  # at once: a frame without columns is collected by nobody
        return answer(ctx, others.to_arrow_table())


def _change(ctx: datafusion.SessionContext, statement: Statement) -> Change | None:
    """The statement, if it changes rows of a table of ours."""
    match statement.sql.tree:
        case syntax.Delete() as tree:
            return delete(ctx, statement, tree)
        case syntax.Truncate() as tree:
            return truncate(ctx, statement, tree)
        case syntax.Update() as tree:
            return update(ctx, statement, tree)
        case syntax.Insert() as tree:
            return insert(ctx, statement, tree)
        case syntax.Merge() as tree:
            return merge(ctx, statement, tree)
    return None


def _done(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run a statement that is neither a query nor a change of rows; None for DataFusion's own."""
    match statement.sql.tree:
        case syntax.Call() as tree:
            return called(ctx, statement, tree, parameters)
        case syntax.Variable() as tree:
            rows = run_variable(ctx, statement, tree)
            return None if rows is None else answer(ctx, rows)
        case syntax.CreateTable() as tree:
            return created(ctx, statement, tree, parameters)
        case syntax.CreateIndex() as tree:
            return created_index(ctx, statement, tree, parameters)
        case syntax.DropIndex() as tree:
            return dropped_index(ctx, statement, tree)
        case syntax.AlterTable() as tree:
            return altered(ctx, statement, tree)
        case syntax.Named() as tree:
            if statement.sql.word == "DROP":
                return dropped(ctx, statement, tree)
            refuse_view(ctx, statement, tree)
    return None


def _explain(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """The plan of a query, or of the query by which a statement finds the rows that it changes."""
    explained = parsed(parser_of(ctx), statement.source.since(statement.sql.explained))
    word, analyzes = explained.sql.word, statement.sql.analyzes
    change = _change(ctx, explained)
    if change is None and (word in _CHANGES or word in _WITHOUT_PLAN):
        message = "EXPLAIN shows plans of queries, and of changes of rows of MemWAL tables"
        raise explained.unsupported(message, explained.sql.part.start)
    if change is None:
        plan = frame(ctx, statement.source, parameters)
        return plan if analyzes else _plan(ctx, plan)
    if analyzes:
        raise UnsupportedError(
            f"EXPLAIN ANALYZE would run the {word}: EXPLAIN shows how it finds its rows"
        )
    start = explained.sql.part.start if explained.sql.ctes is None else explained.sql.ctes.start
    prefix = statement.source.text[statement.sql.part.start : start]
    query = f"{prefix} {change.target.ctes} {change.query}"
    return _plan(ctx, frame(ctx, query, parameters, change.target.strong))


def _plan(ctx: datafusion.SessionContext, explained: datafusion.DataFrame) -> datafusion.DataFrame:
    """The rows of EXPLAIN, without the names that tables have within a statement alone."""
    with planning_errors():
        rows = explained.to_arrow_table()
    texts = [without_insides(text) for text in rows["plan"].to_pylist()]
    return answer(ctx, rows.set_column(1, rows.schema.field("plan"), [texts]))


class SessionContext(datafusion.SessionContext):
    """A session of DataFusion in which `sql` is `mw.sql`: statements that write run at once."""

    def sql(
        self,
        query: str,
        options: datafusion.SQLOptions | None = None,
        param_values: Mapping[str, Any] | None = None,
        **parameters: Any,
    ) -> datafusion.DataFrame:
        """Run one statement; see `mw.sql`. `param_values` are more of `parameters`."""
        return sql(self, query, options=options, **{**(param_values or {}), **parameters})


QUERY_WORDS = frozenset(("SELECT", "WITH", "(", "FROM"))
_WITHOUT_PLAN = frozenset(("ALTER", "CALL", "CREATE", "DROP", "SET", "RESET"))
# Those that DataFusion runs over its own tables.
_PLAIN_CHANGES = frozenset(("DELETE", "UPDATE", "INSERT"))
_CHANGES = frozenset(("DELETE", "UPDATE", "TRUNCATE", "MERGE", "INSERT", "REPLACE"))
# What to write for statements of other databases.
_INSTEAD: Mapping[str, str] = {
    "BEGIN": "each statement that changes rows is a transaction of its own",
    "OPTIMIZE": "CALL memwal.compact('t') joins small fragments",
    "VACUUM": "CALL memwal.collect_garbage('t') deletes the files that nobody needs",
}
