"""A process whose provider panics at every place that DataFusion asks it; says what comes of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import pyarrow as pa

from exec_nodes.node import Node, Statistics
from memwal_native import MountedTable, Predicate
from tests.sql.fakes import FakeProvider, Rows

TABLE = pa.table({"id": pa.array([1, 2], pa.int64())})
PLACES = ("filters", "scan", "schema", "label", "statistics", "run", "check_insert", "insert")


def panic_error() -> type[BaseException]:
    """What the library raises for a panic; where Python code raises it, it is one again."""
    known: list[Predicate] = []

    class Keeping(FakeProvider):
        def scan(self, projection: Any, predicates: list[Predicate], limit: Any) -> Node:
            known.extend(predicates)
            return super().scan(projection, predicates, limit)

    query(Keeping(TABLE), "SELECT * FROM t WHERE id = 1")
    inner = pa.StructArray.from_arrays([TABLE["id"].combine_chunks()], ["x"])
    sliced = pa.StructArray.from_arrays([inner], ["y"]).slice(1)  # arrow-rs reads beyond its end
    try:
        known[0].evaluate(pa.record_batch([pa.array([1]), sliced], ["id", "s"]))
    except BaseException as error:
        return type(error)
    raise AssertionError("nothing panics there any more")


@dataclass(frozen=True)
class Panicking(Rows):
    """Panics at one place."""

    place: str = ""
    error: type[BaseException] = BaseException

    def _at(self, place: str) -> None:
        if self.place == place:
            raise self.error(place)

    @property
    def schema(self) -> pa.Schema:
        self._at("schema")
        return super().schema

    @property
    def statistics(self) -> Statistics:
        self._at("statistics")
        return super().statistics

    def label(self) -> str:
        self._at("label")
        return super().label()

    def _run(self, partition: int) -> Iterator[pa.RecordBatch]:
        self._at("run")
        return super()._run(partition)


class PanickingProvider(FakeProvider):
    """Panics at one place, or gives a node that does."""

    def __init__(self, place: str, error: type[BaseException]) -> None:
        super().__init__(TABLE)
        self.place = place
        self.error = error

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        self._at("filters")
        return ["unsupported"] * len(filters)

    def scan(self, projection: Any, predicates: list[Predicate], limit: int | None) -> Node:
        self._at("scan")
        batches = tuple(self.table.to_batches())
        return Panicking(TABLE.schema, (batches,), place=self.place, error=self.error)

    def check_insert(self, nulls: list[str]) -> None:
        self._at("check_insert")

    def insert(self, rows: Any) -> int:
        self._at("insert")
        return 0

    def _at(self, place: str) -> None:
        if self.place == place:
            raise self.error(place)


def query(provider: Any, sql: str) -> None:
    context = datafusion.SessionContext()
    context.register_table("t", MountedTable(provider))
    context.sql(sql).collect()


def statements(place: str) -> list[str]:
    """Those in which DataFusion asks at a place."""
    if "insert" in place:
        return ["INSERT INTO t VALUES (1)"]
    select = "SELECT * FROM t WHERE id = 1"
    return [select, f"EXPLAIN ANALYZE {select}"]


def main() -> None:
    error = panic_error()
    for place in PLACES:
        for sql in statements(place):
            try:
                query(PanickingProvider(place, error), sql)
            except Exception as raised:
                if "panic in memwal_native" in str(raised):
                    sys.stdout.write(f"{place}: {sql}\n")


if __name__ == "__main__":
    main()
