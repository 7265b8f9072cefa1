"""`table.create_index` and `table.drop_index`.

An index is built over the base table by Lance and then noted in `maintained_indexes` of the MemWAL
index, so that every generation gets it too (specification 2, "MemTable Indexing"). Between the two
commits, and for an index that Lance made or dropped without a note, nothing breaks: vector indexes
are inherited anyway, and a search finds without an index what it finds with one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.errors import (
    InvalidCallError,
    UnsupportedError,
)
from memwal_sql.index.kinds import KINDS, SCALAR_KINDS, TEXT_KINDS, VECTOR_KINDS, IndexParameters
from memwal_sql.index.text import text_arguments
from memwal_sql.index.vector import vector_arguments
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import Rewrite, change_details, details_of, latest_dataset
from memwal_sql.state.context import TableContext
from memwal_sql.state.schema import primary_key_of
from memwal_sql.storage.base.commits import base_commit, half_done
from memwal_sql.storage.base.memwal_index import INDEX_NAME, IndexDetails
from memwal_sql.storage.deadlines import check_deadline

_log = life_log(__name__)

# Lance's other kinds answer conditions that this package never hands to it.
_UNASKED = {
    "LABEL_LIST": "array_has and its like",
    "NGRAM": "contains",
    "RTREE": "functions of geometries",
    "MINHASHLSH": "searches by MinHash",
}


def create_index(
    context: TableContext,
    column: str,
    index_type: str,
    *,
    name: str | None,
    replace: bool,
    parameters: IndexParameters,
) -> None:
    """See `Table.create_index`."""
    kind = index_type.upper() if isinstance(index_type, str) else index_type
    if isinstance(kind, str) and kind in _UNASKED:
        raise UnsupportedError(
            f"an index of kind {kind} is for {_UNASKED[kind]}, which no query of this package "
            "looks up in an index: make it with lance, for readers by plain Lance; here there are "
            f"{list(KINDS)}"
        )
    if kind not in KINDS:
        raise InvalidCallError(f"index_type={index_type!r} must be one of {list(KINDS)}")
    dataset = latest_dataset(context)
    names = dataset.schema.names
    if column not in names and kind not in TEXT_KINDS:
        raise InvalidCallError(f"column={column!r} is not a column of the table; it has {names}")
    chosen = _name(name, column)
    _check_free(dataset, chosen, column, kind, replace=replace)
    if kind in VECTOR_KINDS:
        arguments = vector_arguments(dataset, dataset.schema.field(column), kind, parameters)
        build = dataset.create_index
    else:
        if kind in TEXT_KINDS:
            arguments = text_arguments(dataset.schema, column, parameters)
        else:
            arguments = _no_arguments(kind, parameters)
        build = dataset.create_scalar_index
    built = partial(build, column, kind, name=chosen, replace=replace, **arguments)
    _commit(context.uri, f"index {chosen!r}, which replace=True makes again", built)
    if kind not in SCALAR_KINDS:
        job = f"create_index {chosen}"
        with half_done(
            f"index {chosen!r} is made, and flushed parts may not get it: make it again, with "
            "replace=True"
        ):
            _maintain(context, job, lambda maintained: _with(maintained, chosen))
    _log.info("indexed %s: made index %r, %s on %r", context.uri, chosen, kind, column)


def drop_index(context: TableContext, name: str) -> None:
    """See `Table.drop_index`."""
    dataset = latest_dataset(context)
    indexes = {index.name: index for index in indexes_of(dataset)}
    indexes.pop(INDEX_NAME, None)
    if name not in indexes:
        if name in details_of(context, dataset).maintained_indexes:  # Lance has dropped it
            forget_indexes(context, [name])
            return
        raise InvalidCallError(f"name={name!r} is not an index; there are {sorted(indexes)}")
    column = indexes[name].field_names[0]
    if column in primary_key_of(dataset.schema) and _lone_btree(dataset, name):
        raise InvalidCallError(f"only {name!r} finds the primary key column {column!r}")
    with half_done(
        f"index {name!r} may be there still, and flushed parts do not get it: drop it again"
    ):
        forget_indexes(context, [name])
        dataset = latest_dataset(context)
        _commit(context.uri, f"the end of index {name!r}", partial(dataset.drop_index, name))
    _log.info("dropped index %r of %s", name, context.uri)


def forget_indexes(context: TableContext, names: Collection[str]) -> None:
    """Stop maintaining the indexes of these names."""
    job = f"drop_index {sorted(names)}"
    _maintain(context, job, lambda maintained: (n for n in maintained if n not in names))


def default_name(column: str) -> str:
    """The name of an index on a column or a path, which SQL takes without quotes."""
    return f"{column.replace('.', '_')}_idx"


def _name(name: str | None, column: str) -> str:
    if name is None:
        return default_name(column)
    if not isinstance(name, str) or not name or name == INDEX_NAME:
        raise InvalidCallError(f"name={name!r} can't be the name of an index")
    return name


def _check_free(dataset: Any, name: str, column: str, kind: str, *, replace: bool) -> None:
    for index in indexes_of(dataset):
        if index.name != name:
            continue
        columns = list(index.field_names)
        if not replace:
            raise InvalidCallError(
                f"there is an index {name!r} on {columns} already: give another name, or "
                "replace=True to build it again"
            )
        if columns != [column]:
            raise InvalidCallError(f"{name!r} is an index on {columns}, not on {column!r}")
        finds = column in primary_key_of(dataset.schema) and _lone_btree(dataset, name)
        if finds and kind != "BTREE":
            raise InvalidCallError(f"{name!r} finds primary keys, and {kind} can't: name another")


def _lone_btree(dataset: Any, name: str) -> bool:
    """Whether an index is the one BTREE of its columns."""
    btrees = {
        index.name: list(index.field_names)
        for index in indexes_of(dataset)
        if index.index_type.upper() == "BTREE"
    }
    return name in btrees and list(btrees.values()).count(btrees[name]) == 1


def _no_arguments(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    if parameters:
        raise InvalidCallError(f"{kind} takes no parameters, but {sorted(parameters)} are given")
    return {}


def _commit(uri: str, what: str, call: Callable[[], object]) -> None:
    check_deadline(uri)
    with base_commit(uri, what):
        try:
            call()
        except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise InvalidCallError(f"Lance refuses: {error}") from error


def _with(maintained: Iterable[str], name: str) -> tuple[str, ...]:
    return (*(index_name for index_name in maintained if index_name != name), name)


def _maintain(
    context: TableContext, job: str, change: Callable[[tuple[str, ...]], Iterable[str]]
) -> None:
    def changed(rewrite: Rewrite) -> IndexDetails:
        names = tuple(change(rewrite.details.maintained_indexes))
        return dataclasses.replace(rewrite.details, maintained_indexes=names)

    change_details(context, job, changed)
