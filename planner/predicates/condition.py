"""Conditions: DataFusion's expression, the predicate that planning knows, and the text for
Lance."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

import memwal_native
from exec_nodes.base.columns import Filter
from planner.predicates import expr as nodes
from planner.predicates.expr import UNKNOWN, Predicate
from planner.predicates.lance_filter import lance_filter


@dataclass(frozen=True, slots=True)
class Condition(Filter):
    """A filter that planning can look into.

    Attributes:
        predicate: its meaning; by default one that rules no row out.
    """

    predicate: Predicate = UNKNOWN


def predicate_of(native: memwal_native.Predicate) -> Predicate:
    """The predicate of a DataFusion filter."""
    predicate: Predicate = native.tree(nodes)
    return predicate


def condition_of(native: memwal_native.Predicate, schema: pa.Schema) -> Condition:
    """A filter of DataFusion over columns of `schema`; Lance applies it where it can."""
    predicate = predicate_of(native)
    lance = lance_filter(predicate, schema)
    text = repr(native) if native.sql is None else native.sql
    return Condition(text, native.evaluate, tuple(native.columns), lance, predicate, native=native)
