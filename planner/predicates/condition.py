"""Conditions: what DataFusion evaluates, what planning knows of it, and what Lance makes of it."""

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
        predicate: what it says; by default nothing that rules a row out.
        given: DataFusion's filter that it is, if it is one.
    """

    predicate: Predicate = UNKNOWN
    given: memwal_native.Predicate | None = None


def predicate_of(given: memwal_native.Predicate) -> Predicate:
    """What a filter of DataFusion says."""
    predicate: Predicate = given.tree(nodes)
    return predicate


def condition_of(given: memwal_native.Predicate, schema: pa.Schema) -> Condition:
    """A filter of DataFusion over columns of `schema`; Lance applies it where it can."""
    predicate = predicate_of(given)
    lance = lance_filter(predicate, schema)
    text = repr(given) if given.sql is None else given.sql
    return Condition(text, given.evaluate, tuple(given.columns), lance, predicate, given)
