"""`mw.sql`: the statements of a session, with those that DataFusion has not."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.allowed import (
    ALL,
    FILES,
    allowed_by,
    check_allowed,
    options_of,
)
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.copy_from import check_copy_to, copy_from
from memwal_sql.statements.changes.delete import delete, truncate
from memwal_sql.statements.changes.insert_into import insert, with_excluded
from memwal_sql.statements.changes.merge_into import merge
from memwal_sql.statements.changes.target import after_ctes
from memwal_sql.statements.changes.update import update
from memwal_sql.statements.definitions.alter import altered
from memwal_sql.statements.definitions.create import created
from memwal_sql.statements.definitions.drop import dropped
from memwal_sql.statements.definitions.indexes import created_index, dropped_index
from memwal_sql.statements.frame import Frame
from memwal_sql.statements.procedures import called
from memwal_sql.statements.queries.as_of import refuse_as_of
from memwal_sql.statements.queries.datafusion_errors import without_insides
from memwal_sql.statements.queries.distance_operators import with_distances
from memwal_sql.statements.queries.one_snapshot import frame
from memwal_sql.statements.queries.places import errors_of_calls
from memwal_sql.statements.queries.planning import (
    answer,
    parser_of,
    planned,
    planning_errors,
    refuse_unused,
)
from memwal_sql.statements.queries.settings import (
    check_catalog,
    reset_variable,
    set_variable,
    show_variable,
)
from memwal_sql.statements.queries.tokens import Statement, statement_of


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
        raise InvalidCallError(f"{ctx!r} is no session, as datafusion.SessionContext() is")
    with errors_of_calls():
        parser_of(ctx)
        statement = statement_of(text)
        refuse_unused(parameters.keys() - statement.parameters)
        return run(ctx, statement, parameters, options)


def run(
    ctx: datafusion.SessionContext,
    statement: Statement,
    parameters: Mapping[str, Any],
    options: datafusion.SQLOptions | None = None,
) -> datafusion.DataFrame:
    """The same for a statement that has been read."""
    allowed = ALL if options is None else allowed_by(options)
    check_catalog(ctx)
    with errors_of_calls(), statement.places():
        statement = with_excluded(with_distances(ctx, statement, parameters))
    with errors_of_calls(), statement.places():
        check_allowed(statement.keyword(after_ctes(statement)), allowed)
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
    first = statement.keyword(0) or statement.symbol(0)
    handler = _STATEMENTS.get(first)
    done = None if handler is None else handler(ctx, statement, parameters)
    if done is not None:
        return done
    refuse_as_of(statement)
    if first in _INSTEAD:
        raise UnsupportedError(f"mw.sql does not run {first}: {_INSTEAD[first]}")
    word = statement.keyword(after_ctes(statement))
    if word in _CHANGES:
        raise UnsupportedError(
            f"mw.sql changes rows of MemWAL tables alone: ctx.sql(...) runs {word} of others"
        )
    text = statement.slice(0, len(statement))
    others = planned(ctx, text, parameters, options_of(allowed))
    if others.schema().names:
        return others
    with planning_errors():  # at once: a frame without columns is collected by nobody
        return answer(ctx, others.to_arrow_table())


def _change(ctx: datafusion.SessionContext, statement: Statement) -> Change | None:
    """The statement, if it changes rows of a table of ours."""
    place = after_ctes(statement)
    make = _CHANGES.get(statement.keyword(place))
    if make is None:
        return None
    return make(
        ctx, statement.part(place, len(statement)), statement.part(0, place) if place else None
    )


def _query(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    query = statement.slice(0, len(statement))
    return frame(ctx, query, parameters)


def _copy(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """Write the files at once."""
    check_copy_to(statement)
    query = statement.slice(0, len(statement))
    with planning_errors():
        found = frame(ctx, query, parameters, options=FILES)
        return answer(ctx, found.to_arrow_table())


def _explain(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """The plan of a query, or of the query by which a statement finds the rows that it changes."""
    place = 1
    while statement.keyword(place) in _EXPLAINED:
        if statement.keyword(place) == "FORMAT" and statement.keyword(place + 1) not in _FORMATS:
            raise statement.error("plans are shown as indent, tree, pgjson or graphviz", place + 1)
        place += _EXPLAINED[statement.keyword(place)]
    analyzes = statement.find("ANALYZE", 0, place) < place
    explained = statement.part(place, len(statement))
    word = explained.keyword(after_ctes(explained))
    change = _change(ctx, explained)
    if change is None and (word in _CHANGES or word in ("ALTER", "CALL")):
        message = "EXPLAIN shows plans of queries, and of changes of rows of MemWAL tables"
        raise UnsupportedError(str(statement.error(message, place)))
    if change is None:
        found = _query(ctx, statement, parameters)
        return found if analyzes else _plan(ctx, found)
    if analyzes:
        raise UnsupportedError(
            f"EXPLAIN ANALYZE would run the {explained.keyword(after_ctes(explained))}: EXPLAIN "
            "shows how it finds its rows"
        )
    query = f"{statement.slice(0, place)} {change.target.ctes} {change.query}"
    return _plan(ctx, frame(ctx, query, parameters, change.target.strong))


def _plan(ctx: datafusion.SessionContext, explained: datafusion.DataFrame) -> datafusion.DataFrame:
    """The rows of EXPLAIN, without the names that tables have within a statement alone."""
    with planning_errors():
        rows = explained.to_arrow_table()
    texts = [without_insides(text) for text in rows["plan"].to_pylist()]
    return answer(ctx, rows.set_column(1, rows.schema.field("plan"), [texts]))


def _create(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    if statement.has(1, "UNIQUE INDEX"):
        raise UnsupportedError(
            str(statement.error("no index is unique: the primary key alone is, by itself", 1))
        )
    is_index = "INDEX" in (statement.keyword(1), statement.keyword(3))
    return (created_index if is_index else created)(ctx, statement, parameters)


def _drop(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    is_index = statement.keyword(1) == "INDEX"
    return (dropped_index if is_index else dropped)(ctx, statement, parameters)


def _set(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    return answer(ctx, pa.table({})) if set_variable(ctx, statement) else None


def _show(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    found = show_variable(ctx, statement)
    return None if found is None else answer(ctx, found)


def _reset(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    return answer(ctx, pa.table({})) if reset_variable(ctx, statement) else None


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


# What may stand between EXPLAIN and its statement, and how many words it is.
_EXPLAINED = {"ANALYZE": 1, "VERBOSE": 1, "FORMAT": 2}
_FORMATS = ("INDENT", "TREE", "PGJSON", "GRAPHVIZ")
# By the first token after a WITH clause, which is given apart; None for DataFusion's own.
_CHANGES: Mapping[
    str, Callable[[datafusion.SessionContext, Statement, Statement | None], Change | None]
] = {
    "DELETE": delete,
    "UPDATE": update,
    "TRUNCATE": truncate,
    "MERGE": merge,
    "INSERT": insert,
    "REPLACE": insert,
    "COPY": copy_from,
}
# What to write for statements of other databases.
_INSTEAD: Mapping[str, str] = {
    "BEGIN": "each statement that changes rows is a transaction of its own",
    "OPTIMIZE": "CALL memwal.compact('t') joins small fragments",
    "VACUUM": "CALL memwal.collect_garbage('t') deletes the files that nobody needs",
}
# By its first token; None for a statement that is DataFusion's after all.
Handler = Callable[
    [datafusion.SessionContext, Statement, Mapping[str, Any]], datafusion.DataFrame | None
]
_STATEMENTS: Mapping[str, Handler] = {
    "SELECT": _query,
    "WITH": _query,
    "(": _query,
    "FROM": _query,
    "COPY": _copy,
    "EXPLAIN": _explain,
    "CALL": called,
    "SET": _set,
    "SHOW": _show,
    "RESET": _reset,
    "CREATE": _create,
    "DROP": _drop,
    "ALTER": altered,
}
