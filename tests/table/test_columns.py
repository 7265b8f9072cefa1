"""Columns that are added, dropped and renamed, against a dict of rows by column."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata

import memwal_sql as mw
from memwal_sql.maintain.columns import ColumnShare
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.table import columns
from tests.each import each
from tests.soak import SOAK

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("a", pa.int64(), False), ("b", pa.string())]
)


def add_in_tasks(
    table: mw.Table,
    columns: dict[str, str],
    tasks: int = 2,
    before: Callable[[], object] = lambda: None,
) -> list[int]:
    """Add columns that tasks compute, each with what another process would have of it; how many
    rows each has computed, after `before` and again where that was in the way."""
    computed: list[int] = []

    def run(shares: Sequence[ColumnShare]) -> list[list[FragmentMetadata]]:
        before() if not computed else None
        computed.clear()
        results = []
        for share in pickle.loads(pickle.dumps([*shares, shares[-1]] if shares else [])):
            fragments = mw.open_table(table.uri).compute_columns(share)
            computed.append(sum(fragment.physical_rows for fragment in fragments))
            results.append(pickle.loads(pickle.dumps(fragments)))
        return results[:-1]  # the last task has run twice

    table.add_columns_in_tasks(columns, run, tasks)
    return computed[:-1]


class Columns:
    """A table, a writer that may be older than its columns, and what both must have.

    A column is a number for good, whatever its name is.
    """

    def __init__(self, uri: str, random: Random) -> None:
        self.random = random
        self.table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
        self.numbers = count()
        self.names = {next(self.numbers): name for name in SCHEMA.names}
        self.rows: dict[int, dict[int, Any]] = {}
        self.reopen()

    def reopen(self) -> None:
        with suppress(AttributeError, mw.ReopenError):
            self.writer.close()
        self.writer = self.table.writer()
        self.writes = dict(self.names)

    def write(self, keys: list[int] | None = None) -> None:
        keys = keys or self.random.sample(range(12), self.random.randint(1, 4))
        rows = [
            {
                number: key if name == "id" else self._value(name)
                for number, name in self.writes.items()
            }
            for key in keys
        ]
        named = [{self.writes[n]: value for n, value in row.items()} for row in rows]
        try:
            self.writer.upsert(named)
        except mw.ReopenError:  # fenced by a column that was computed
            self.reopen()
            return self.write(keys)  # some regions may have them
        self.rows |= dict(zip(keys, rows, strict=True))
        return None

    def _value(self, name: str) -> Any:
        value = self.random.randrange(100)
        return f"t{value}" if name.startswith("b") else value

    def delete(self) -> None:
        key = self.random.randrange(12)
        try:
            self.writer.delete([key])
        except mw.ReopenError:
            return self.reopen()
        self.rows.pop(key, None)
        return None

    def flush(self) -> None:
        with suppress(mw.ReopenError):
            self.writer.flush()

    def merge(self) -> None:
        self.table.merge()

    def add(self) -> None:
        number = next(self.numbers)
        name, kind = self.random.choice([(f"a{number}", pa.int64()), (f"b{number}", pa.string())])
        self.table.add_columns([pa.field(name, kind)])
        self.names[number] = name

    def compute(self) -> None:
        source = self.random.choice([n for n, name in self.names.items() if name != "b"])
        if self.names[source].startswith("b"):
            return
        number = next(self.numbers)
        name = f"a{number}"
        expression = f"CASE WHEN {self.names[source]} > 50 THEN 1 ELSE {self.names[source]} + 1 END"
        if self.random.random() < 0.5:
            self.table.add_columns({name: expression})
        else:
            add_in_tasks(self.table, {name: expression})
        for row in self.rows.values():
            value = row.get(source)
            row[number] = None if value is None else 1 if value > 50 else value + 1
        self.names[number] = name

    def drop(self) -> None:
        if len(self.names) > 2:
            number = self.random.choice(list(self.names)[1:])
            self.table.drop_columns([self.names.pop(number)])

    def rename(self) -> None:
        if len(self.names) > 1:
            number = self.random.choice(list(self.names)[1:])
            new = f"{self.names[number][0]}n{next(self.numbers)}"
            self.table.rename_column(self.names[number], new)
            self.names[number] = new

    def nullable(self) -> None:
        if 1 in self.names:
            self.table.set_nullable(self.names[1])

    def check(self) -> None:
        columns = list(self.names.items())
        expected = {
            key: {name: row.get(number) for number, name in columns}
            for key, row in sorted(self.rows.items())
        }
        for table in (self.table, mw.open_table(self.table.uri)):
            found = table.to_arrow()
            assert set(found.schema.names) == set(self.names.values())
            assert {row["id"]: row for row in found.to_pylist()} == expected
        got = self.table.get(list(range(12)))
        assert {row["id"]: row for row in got.to_pylist()} == expected


@pytest.mark.parametrize("seed", range(3 * SOAK))
def test_rows_follow_their_columns_through_any_history(uri: str, seed: int) -> None:
    history = Columns(uri, Random(seed))
    steps: list[Callable[[], None]] = [
        *[history.write] * 4,
        history.delete,
        *[history.flush] * 2,
        history.merge,
        history.reopen,
        history.add,
        history.compute,
        *[history.drop] * 2,
        history.rename,
        history.nullable,
    ]
    for _ in range(30):
        history.random.choice(steps)()
        history.check()
    history.flush()
    history.merge()
    history.check()
    assert not [one for one in history.table.check().findings if one.check != "leftovers"]


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "a": [1, 2, 3], "b": ["x", "y", "z"]})
        writer.flush()
        table.merge()
        writer.upsert({"id": [3, 4], "a": [30, 40], "b": ["zz", "w"]})
    return table


def test_the_id_of_a_dropped_column_is_never_given_again(uri: str) -> None:
    """No file of the base table has it, and a writer from before goes on to write it."""
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [1], "a": [1], "b": ["old"]})
        table.drop_columns(["b"])
        table.add_columns(pa.field("c", pa.string()))
        writer.upsert({"id": [2], "a": [2], "b": ["older"]})
        assert table.to_arrow(["c"]).to_pydict() == {"c": [None, None]}
        table.add_columns({"d": "'new'"})
    assert sorted(table.to_arrow(["d"]).to_pydict()["d"]) == ["new", "new"]
    ids = [one.id() for one in lance.dataset(uri).lance_schema.fields()]
    assert ids == sorted({*ids}) and 2 not in ids


def test_merge_progress_and_regions_survive(table: mw.Table) -> None:
    """Protocol rule 19."""
    store = open_store(table.uri)
    before = read_details(store, lance.dataset(table.uri))
    for change in (
        lambda: table.add_columns(pa.field("c", pa.int8())),
        lambda: table.rename_column("c", "d"),
        lambda: table.drop_columns("d"),
        lambda: table.set_nullable("a"),
    ):
        change()
        after = read_details(store, lance.dataset(table.uri))
        assert before is not None and after is not None
        assert before.details == after.details
    table.add_columns({"c": "a"})
    after = read_details(store, lance.dataset(table.uri))
    assert after is not None and before is not None
    progress = before.details.merged_generations
    assert after.details.merged_generations.items() >= progress.items() or all(
        after.details.merged_generations[one] >= progress[one] for one in progress
    )
    assert after.details.region_specs == before.details.region_specs


def test_an_index_goes_with_its_column(table: mw.Table) -> None:
    table.create_index("b", "FTS")
    table.rename_column("b", "text")
    found = table.full_text_search("text", "zz", 3).to_pylist()
    assert [row["id"] for row in found] == [3]
    table.drop_columns("text")
    assert "b_idx" not in table.indexes()["name"].to_pylist()
    with table.writer() as writer:
        writer.upsert({"id": [9], "a": [9]})
        writer.flush()
    table.merge()
    table.build_indexes()
    assert table.check().ok


def test_a_column_that_could_not_be_dropped_keeps_its_indexes(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no space left on device")

    table.create_index("b", "FTS")
    table.create_index("b", "BTREE", name="by_b")
    before = table.indexes().to_pylist()
    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceDataset, "drop_columns", fails)
        with pytest.raises(mw.OutcomeUnknownError, match="may be there or not"):
            table.drop_columns(["a", "b"])
    table.refresh()
    assert table.indexes().to_pylist() == before
    assert {"a", "b"} <= {*table.schema.names}


def test_a_column_is_dropped_whatever_becomes_of_the_note_of_its_indexes(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise mw.StoreUnavailableError("no space: nothing was written")

    table.create_index("b", "FTS")
    with monkeypatch.context() as patched:
        patched.setattr(columns, "forget_indexes", fails)
        table.drop_columns("b")
    assert "b" not in table.schema.names
    assert "b_idx" not in table.indexes()["name"].to_pylist()
    with table.writer() as writer:
        writer.upsert({"id": [9], "a": [9]})
        writer.flush()
    table.merge()
    (finding,) = (one for one in table.check() if one.severity == "warning")
    assert "'b_idx' is to be maintained" in finding.what
    table.drop_index("b_idx")
    assert not [one for one in table.check() if one.severity == "warning"]


def test_deleted_rows_of_the_base_are_not_computed(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [*range(9)], "a": [0, 1, 2, 0, 4, 5, 6, 7, 0], "b": [None] * 9})
        writer.flush()
        table.merge()
        writer.delete([0, 3, 8])
        writer.flush()
        table.merge()
    table.add_columns({"q": "100 / a"})
    found = table.to_arrow(["a", "q"]).to_pylist()
    assert {row["a"]: row["q"] for row in found} == {a: 100 // a for a in (1, 2, 4, 5, 6, 7)}


def test_merges_and_indexes_that_come_in_between_are_looked_at(table: mw.Table) -> None:
    """Another committer of the base table, between the look at it and the commit."""
    dataset = lance.dataset(table.uri)
    add = table.add_columns
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    add({"c": "a + 1"})
    assert lance.dataset(table.uri).version > dataset.version
    assert sorted(table.to_arrow(["c"])["c"].to_pylist()) == [2, 3, 31, 41]


@each("in_between", [False, True])
def test_the_work_of_a_task_falls_with_their_number(uri: str, in_between: bool) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    rows = pa.table({"id": range(900), "a": range(900), "b": ["b"] * 900}, SCHEMA)
    schema = lance.dataset(uri).schema
    lance.write_dataset(rows.cast(schema), uri, mode="append", max_rows_per_file=50)

    def write() -> None:
        row = pa.table({"id": [-1], "a": [-1], "b": [""]}, schema)
        lance.write_dataset(row, uri, mode="append")

    more = 0
    for tasks in (1, 3, 9):
        more += in_between
        columns = {f"c{tasks}": "a + 1"}
        computed = add_in_tasks(table, columns, tasks, write if in_between else lambda: None)
        assert sum(computed) == 900 + more and max(computed) <= 900 // tasks + more
        added = table.to_arrow(["a", f"c{tasks}"]).to_pylist()
        assert [row[f"c{tasks}"] for row in added] == [row["a"] + 1 for row in added]


@each(
    "call, match",
    [
        (lambda t: t.add_columns({"b": "1"}), r"has columns \['b'\] already"),
        (lambda t: t.add_columns({"c": "nope + 1"}), "not an expression over the row"),
        (lambda t: t.add_columns({"c": "sum(a)"}), "can't be evaluated"),
        (lambda t: t.add_columns({"c": "NULL"}), "no type"),
        (lambda t: t.add_columns({"c": 1}), "not a SQL expression"),
        (lambda t: t.add_columns({"c": "a / 0"}), "can't be evaluated"),
        (lambda t: t.add_columns({}), "name the columns"),
        (lambda t: add_in_tasks(t, "c"), "tasks compute SQL"),  # type: ignore[arg-type]
        (lambda t: add_in_tasks(t, {"c": "nope"}), "not an expression over the row"),
        (lambda t: t.add_columns([]), "must be Arrow fields"),
        (lambda t: t.add_columns("c"), "must be Arrow fields"),
        (lambda t: t.add_columns(pa.field("c", pa.int8(), False)), "make them nullable"),
        (lambda t: t.add_columns(pa.field("_gen", pa.int8())), "reserved"),
        (lambda t: t.drop_columns("id"), "primary key"),
        (lambda t: t.drop_columns(["nope"]), "has no columns"),
        (lambda t: t.drop_columns([]), "name the columns"),
        (lambda t: t.rename_column("id", "key"), "primary key"),
        (lambda t: t.rename_column("a", "b"), "unique"),
        (lambda t: t.rename_column("a", "x.y"), "dot"),
        (lambda t: t.set_nullable("id"), "primary key"),
        (lambda t: t.set_nullable("a", False), "may still write nulls"),
        (lambda t: t.as_of(t.version).drop_columns("b"), "reads version"),
    ],
)
@pytest.mark.filterwarnings("ignore::memwal_sql.UnrecordedVersionWarning")
def test_bad_calls_change_nothing(
    table: mw.Table, call: Callable[[mw.Table], object], match: str
) -> None:
    names, rows = table.schema, table.count_rows()
    with pytest.raises(mw.InvalidCallError, match=match):
        call(table)
    table.refresh()
    assert table.schema == names and table.count_rows() == rows


def test_computed_columns_are_refused_where_regions_are_given_by_hand(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id", regions="manual")
    with pytest.raises(mw.UnsupportedError, match="manual regions"):
        table.add_columns({"c": "a"})
    table.add_columns(pa.field("c", pa.int8()))
    assert table.schema.names == ["id", "a", "b", "c"]
