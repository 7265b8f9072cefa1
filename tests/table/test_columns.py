"""Columns that are added, dropped and renamed, against a dict of rows by column."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from random import Random
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.fragment import FragmentMetadata

import memwal_sql as mw
from memwal_sql.maintain.columns import ColumnShare
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.table import columns
from tests.each import each
from tests.exec_nodes.overlays import allow_overlays, overlay
from tests.model.process import forks
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


DEFAULTED = pa.field("c", pa.int8(), metadata={"memwal_sql:default": "7"})
# The types that a column may have, one after the other, by the first letter of its name.
KINDS = {
    "a": [pa.int8(), pa.int16(), pa.int32(), pa.int64()],
    "b": [pa.string()],
    "d": [pa.decimal128(4, 1), pa.decimal128(9, 2), pa.decimal128(30, 4)],
    "f": [pa.float16(), pa.float32(), pa.float64()],
    "i": [pa.int64()],
}


@dataclass(frozen=True)
class Column:
    name: str
    level: int = 0
    default: Any = None

    @property
    def kind(self) -> pa.DataType:
        return KINDS[self.name[0]][self.level]

    def value(self, random: Random) -> Any:
        """One of all values of its type."""
        kind = self.kind
        if pa.types.is_integer(kind):
            return random.randrange(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1))
        if pa.types.is_floating(kind):
            of = kind.to_pandas_dtype()
            return float(random.choice([of(random.random()), np.finfo(of).max]))
        if pa.types.is_decimal(kind):
            return Decimal(random.randrange(10**kind.precision)).scaleb(-kind.scale)
        return f"it's {random.randrange(100)}"


class Columns:
    """A table, a writer that may be older than its columns, and what both must have.

    A column is a number for good, whatever its name is.
    """

    def __init__(self, uri: str, random: Random) -> None:
        self.random = random
        names = ["id", "a", "b", "d", "f"]
        fields = [pa.field(name, KINDS[name[0]][0], name not in ("id", "a")) for name in names]
        self.table = mw.create_table(uri, pa.schema(fields), "id", regions="bucket(id, 2)")
        self.numbers = count()
        self.columns = {next(self.numbers): Column(name) for name in names}
        self.required = {0, 1}
        self.computed: set[int] = set()
        self.rows: dict[int, dict[int, Any]] = {}
        self.reopen()

    def reopen(self) -> None:
        with suppress(AttributeError, mw.ReopenError):
            self.writer.close()
        self.writer = self.table.writer()
        self.writes = dict(self.columns)

    def some(self, columns: dict[int, Column]) -> dict[int, Column]:
        """All, or some with those that new rows need."""
        if self.random.random() < 0.4:
            return columns
        return {
            number: column
            for number, column in columns.items()
            if number == 0
            or (number in self.required and column.default is None)
            or self.random.random() < 0.5
        }

    def keys(self) -> list[int]:
        return self.random.sample(range(12), self.random.randint(1, 4))

    def given(self, columns: dict[int, Column], key: int) -> dict[int, Any]:
        return {n: key if n == 0 else column.value(self.random) for n, column in columns.items()}

    def write(self) -> None:
        """By a writer that may be older than the columns."""
        given, keys = self.some(self.writes), self.keys()
        try:
            rows = self.upsert(given, keys)
        except mw.ReopenError:
            self.reopen()
            given = self.writes  # whole rows, as some regions may have them
            rows = self.upsert(given, keys)
        self.took(rows, self.writes, keeps=len(given) < len(self.writes))

    def upsert(self, given: dict[int, Column], keys: list[int]) -> list[dict[int, Any]]:
        rows = [self.given(given, key) for key in keys]
        self.writer.upsert([{given[n].name: value for n, value in row.items()} for row in rows])
        return rows

    def took(self, rows: list[dict[int, Any]], columns: dict[int, Column], *, keeps: bool) -> None:
        new = {number: column.default for number, column in columns.items()}
        for row in rows:
            before = self.rows.get(row[0]) if keeps else None
            self.rows[row[0]] = {**(new if before is None else before), **row}

    def insert(self) -> None:
        keys = [key for key in self.keys() if key not in self.rows]
        given = {
            number: column
            for number, column in self.writes.items()
            if column.default is None or self.random.random() < 0.3
        }
        rows = [self.given(given, key) for key in keys]
        try:
            self.writer.insert([{given[n].name: v for n, v in row.items()} for row in rows])
        except mw.ReopenError:
            return self.reopen()
        return self.took(rows, self.writes, keeps=False)

    def statement(self) -> None:
        """By SQL, which has the current columns."""
        given, key = self.some(self.columns), self.random.randrange(12)
        row = self.given(given, key)
        words = [f"'{str(value).replace(chr(39), chr(39) * 2)}'" for value in row.values()]
        for place, (number, column) in enumerate(given.items()):
            chosen = number and (column.default is not None or number not in self.required)
            if chosen and self.random.random() < 0.3:
                row[number], words[place] = column.default, "DEFAULT"
        names, values = ", ".join(c.name for c in given.values()), ", ".join(words)
        updates = ", ".join(
            f"{c.name} = {w}" for (n, c), w in zip(given.items(), words, strict=True) if n
        )
        matched = f"WHEN MATCHED THEN UPDATE SET {updates} " if updates else ""
        statement = self.random.choice(
            [
                f"INSERT INTO t ({names}) VALUES ({values})",
                f"REPLACE INTO t ({names}) VALUES ({values})",
                f"INSERT INTO t ({names}) VALUES ({values}) ON CONFLICT DO NOTHING",
                f"MERGE INTO t USING (SELECT {key} AS k) AS s ON t.id = s.k {matched}"
                f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})",
            ]
        )
        try:
            context = datafusion.SessionContext()
            mw.register(context, "t", self.table)
            mw.sql(context, statement)
        except mw.ReopenError:  # of this program's writer
            return self.reopen()
        if "NOTHING" not in statement or key not in self.rows:
            self.took([row], self.columns, keeps=not statement.startswith("REPLACE"))
        return None

    def other(self) -> None:
        """By another handle, as another process has it."""
        rows = [self.given(self.columns, key) for key in self.keys()]
        with mw.open_table(self.table.uri).writer() as writer:
            writer.upsert([{self.columns[n].name: v for n, v in row.items()} for row in rows])
        self.took(rows, self.columns, keeps=False)

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
        column = Column(f"{self.random.choice('abdf')}{number}")
        self.table.add_columns([pa.field(column.name, column.kind)])
        self.columns[number] = column

    def compute(self) -> None:
        source = self.random.choice(list(self.columns)[1:])
        before = self.columns[source].name
        if not before.startswith("a"):
            return
        number = next(self.numbers)
        name = f"a{number}"
        expression = f"CASE WHEN {before} > 50 THEN 1 ELSE {before} + 1 END"
        if self.random.random() < 0.5:
            self.table.add_columns({name: expression})
        else:
            add_in_tasks(self.table, {name: expression})
        for row in self.rows.values():
            value = row.get(source)
            row[number] = None if value is None else 1 if value > 50 else value + 1
        self.columns[number] = Column(name, 3)
        self.computed.add(number)

    def drop(self) -> None:
        if len(self.columns) > 3:
            number = self.random.choice(list(self.columns)[1:])
            self.table.drop_columns([self.columns.pop(number).name])

    def rename(self) -> None:
        number = self.random.choice(list(self.columns)[1:])
        column = self.columns[number]
        new = f"{column.name[0]}n{next(self.numbers)}"
        self.table.rename_column(column.name, new)
        self.columns[number] = replace(column, name=new)

    def nullable(self) -> None:
        if 1 in self.columns:
            self.table.set_nullable(self.columns[1].name)
            self.required.discard(1)

    def widen(self) -> None:
        number = self.random.choice(list(self.columns)[1:])
        column = self.columns[number]
        level = self.random.randint(column.level, len(KINDS[column.name[0]]) - 1)
        self.columns[number] = replace(column, level=level)
        self.table.set_type(column.name, self.columns[number].kind)

    def default(self) -> None:
        number = self.random.choice(list(self.columns)[1:])
        column = self.columns[number]
        value = self.random.choice([None, column.value(self.random)])
        self.table.set_default(column.name, value)
        self.columns[number] = replace(column, default=value)

    def check(self) -> None:
        columns = list(self.columns.items())
        expected = {
            key: {column.name: row.get(number) for number, column in columns}
            for key, row in sorted(self.rows.items())
        }
        for table in (self.table, mw.open_table(self.table.uri)):
            found = table.to_arrow()
            assert {field.name: field.type for field in found.schema} == {
                column.name: column.kind for column in self.columns.values()
            }
            assert {row["id"]: row for row in found.to_pylist()} == expected
        got = self.table.get(list(range(12)))
        assert {row["id"]: row for row in got.to_pylist()} == expected
        for name in (column.name for column in self.columns.values() if column.name[0] == "a"):
            least = self.random.choice([0, 200, 2**40])
            chosen = self.table.to_arrow(["id"], filter=f"{name} > {least}")["id"].to_pylist()
            values = {key: row[name] for key, row in expected.items() if row[name] is not None}
            assert sorted(chosen) == [key for key, value in values.items() if value > least]

    def check_feed(self) -> None:
        """The last change of each key, in the current columns."""
        last = {row["id"]: row for row in self.table.changes().read_all().to_pylist()}
        live = {key: row for key, row in last.items() if row["_change"] != "delete"}
        assert live.keys() == self.rows.keys()
        for number, column in self.columns.items():
            if number not in self.computed:
                for key, row in self.rows.items():
                    assert live[key][column.name] == row.get(number)


@pytest.mark.parametrize("seed", range(3 * SOAK))
def test_rows_follow_their_columns_through_any_history(uri: str, seed: int) -> None:
    history = Columns(uri, Random(seed))
    steps: list[Callable[[], None]] = [
        *[history.write] * 5,
        *[history.insert] * 2,
        *[history.statement] * 2,
        history.other,
        history.delete,
        *[history.flush] * 2,
        history.merge,
        history.reopen,
        history.add,
        history.compute,
        history.drop,
        history.rename,
        history.nullable,
        *[history.widen] * 3,
        *[history.default] * 3,
    ]
    for _ in range(30):
        history.random.choice(steps)()
        history.check()
    history.check_feed()
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


def test_rows_of_a_wider_type_are_never_read_as_a_narrower_one(table: mw.Table) -> None:
    """After plain Lance has restored a version from before the change."""
    table.add_columns(pa.field("f", pa.float32()))
    version = table.version
    table.set_type("f", pa.float64())
    for flushes in (False, True):
        with table.writer() as writer:
            writer.upsert([{"id": 5, "f": 0.1, "a": 1}])
            if flushes:
                writer.flush()
        lance.dataset(table.uri, version=version).restore()
        with pytest.raises(mw.RepairError, match=r"call table\.set_type again"):
            mw.open_table(table.uri).get([5])
        table.set_type("f", pa.float64())
        assert mw.open_table(table.uri).get([5])["f"].to_pylist() == [0.1]


_CHILD: dict[str, Any] = {}


def _in_child(uri: str, rows: list[dict[str, Any]]) -> tuple[bool, list[dict[str, Any]]]:
    """Writes by a writer that stays open; whether it had to be opened again, and all rows."""
    if not _CHILD:
        _CHILD["table"] = mw.open_table(uri)
        _CHILD["writer"] = _CHILD["table"].writer()
    try:
        _CHILD["writer"].upsert(rows)
        again = False
    except mw.ReopenError:
        _CHILD["writer"] = _CHILD["table"].writer()
        _CHILD["writer"].upsert(rows)
        again = True
    return again, _CHILD["table"].to_arrow().sort_by("id").to_pylist()


@each(
    "write, row",
    [
        (lambda w: w.upsert([{"id": 9}]), {"n": 7, "s": "it's", "m": None}),
        (lambda w: w.upsert([{"id": 9, "n": None}]), {"n": None, "s": "it's", "m": None}),
        (lambda w: w.upsert([{"id": 9}], missing="null"), None),
        (lambda w: w.upsert([{"id": 9, "m": 1}], missing="error"), None),
        (lambda w: w.insert([{"id": 9, "m": 1}]), {"n": 7, "s": "it's", "m": 1}),
        (lambda w: w.insert([{"id": 9}]), {"n": 7, "s": "it's", "m": None}),
        (lambda w: w.insert([{"id": 9, "s": "x"}], missing="error"), None),
        (lambda w: w.insert([{"id": 9}], missing="null"), None),
        (lambda w: w.insert([{"id": 9, "s": "x"}], missing="null"), {"n": None, "s": "x"}),
        (lambda w: w.upsert([{"id": 9}, {"id": 9}], set={"n": "t.n + 1"}), {"n": 8, "s": "it's"}),
        (lambda w: w.upsert([{"id": 1}], when="t.n = 1"), {"id": 1, "n": 1, "s": "x", "m": 1}),
        (lambda w: w.apply([{"id": 9, "_op": "u"}]), None),
    ],
)
def test_new_rows_have_defaults(
    uri: str, write: Callable[[Any], object], row: dict[str, Any] | None
) -> None:
    """`row` is the new one, or None where columns are missing."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "m": pa.int64()})
    required = pa.field("s", pa.string(), False, {"memwal_sql:default": "it's"})
    table = mw.create_table(uri, schema.append(required), "id")
    table.set_default("n", 7)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1, "m": 1, "s": "x"}])
        if row is None:
            with pytest.raises(mw.InvalidCallError, match=r"missing|lack"):
                write(writer)
        else:
            write(writer)
            (found,) = table.get([row.get("id", 9)]).to_pylist()
            assert row.items() <= found.items()
    with mw.transaction(table) as tx:
        tx.insert(table, [{"id": 20, "m": 3}])
        tx.upsert(table, [{"id": 21}])
    rows = table.get([20, 21]).to_pylist()
    assert [(r["n"], r["m"], r["s"]) for r in rows] == [(7, 3, "it's"), (7, None, "it's")]


def test_another_process_goes_on(uri: str, within: Callable[[Any], Any]) -> None:
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "n": pa.int32()}), "id")
    child = within(ProcessPoolExecutor(1, forks()))
    expected = {key: key for key in range(4)}

    def write(row: dict[str, Any], n: int | None) -> bool:
        expected[row["id"]] = n
        again, rows = child.submit(_in_child, uri, [row]).result()
        assert rows == [{"id": key, "n": n} for key, n in sorted(expected.items())]
        return bool(again)

    with table.writer() as writer:
        writer.upsert([{"id": key, "n": n} for key, n in expected.items()])
    assert not write({"id": 4, "n": 4}, 4)
    table.set_type("n", pa.int64())
    table.set_default("n", 2**40)
    assert not write({"id": 1, "n": 2**31 - 1}, 2**31 - 1)
    with table.writer() as writer:
        writer.upsert([{"id": 5, "n": 2**33}])
        expected[5] = 2**33
    assert write({"id": 6}, 2**40)


def test_merge_progress_and_regions_survive(table: mw.Table) -> None:
    """Protocol rule 19."""
    store = open_store(table.uri)
    before = read_details(store, lance.dataset(table.uri))
    for change in (
        lambda: table.add_columns(pa.field("c", pa.int8())),
        lambda: table.rename_column("c", "d"),
        lambda: table.drop_columns("d"),
        lambda: table.set_nullable("a"),
        lambda: table.add_columns(pa.field("n", pa.int8())),
        lambda: table.set_type("n", pa.int16()),
        lambda: table.set_default("n", 5),
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


def test_an_indexed_column_and_one_with_overlays_stay_as_they_are(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their files have values of the old type."""
    table.add_columns({"n": "arrow_cast(a, 'Int8')"})
    table.create_index("n", "BTREE")
    with pytest.raises(mw.InvalidCallError, match=r"indexes \['n_idx'\].* drop them"):
        table.set_type("n", pa.int32())
    table.drop_index("n_idx")
    allow_overlays(monkeypatch)
    overlay(lance.dataset(table.uri), 0, "n", pa.array([9], pa.int8()), [0])
    with pytest.raises(mw.InvalidCallError, match=r"overlays .* compact\(\) first"):
        table.set_type("n", pa.int32())
    before = table.to_arrow(["id", "n"]).to_pylist()
    table.compact()
    table.set_type("n", pa.int32())
    table.create_index("n", "BTREE")
    assert table.to_arrow(["id", "n"]).to_pylist() == before
    assert table.to_arrow(["n"], filter="n = 9")["n"].to_pylist() == [9]


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
    schema = SCHEMA.set(1, pa.field("a", pa.int32(), False))
    table = mw.create_table(uri, schema, "id")
    with table.writer() as writer:
        writer.upsert({"id": [*range(9)], "a": [0, 1, 2, 0, 4, 5, 6, 7, 0], "b": [None] * 9})
        writer.flush()
        table.merge()
        writer.delete([0, 3, 8])
        writer.flush()
        table.merge()
    table.add_columns({"q": "100 / a"})
    found = table.to_arrow(["a", "q"]).to_pylist()
    expected = {a: 100 // a for a in (1, 2, 4, 5, 6, 7)}
    assert {row["a"]: row["q"] for row in found} == expected
    table.set_type("a", pa.int64())
    assert {row["a"]: row["q"] for row in table.to_arrow().to_pylist()} == expected


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
        (lambda t: t.add_columns({"c": "nope + 1"}), r"over the row: .*'nope'; .* \['id', 'a"),
        (lambda t: t.add_columns({"c": "sum(a)"}), r"c: 'sum\(a\)' can't .* without aggregates"),
        (lambda t: t.add_columns({"c": "NULL"}), "no type"),
        (lambda t: t.add_columns({"c": 1}), "not a SQL expression"),
        (lambda t: t.add_columns({"c": "a / 0"}), "^c: 'a / 0' can't be evaluated"),
        (lambda t: t.add_columns({}), "name the columns"),
        (lambda t: add_in_tasks(t, "c"), "tasks compute SQL"),  # type: ignore[arg-type]
        (lambda t: add_in_tasks(t, {"c": "nope"}), "not an expression over the row"),
        (lambda t: t.add_columns([]), "must be Arrow fields"),
        (lambda t: t.add_columns("c"), "must be Arrow fields"),
        (lambda t: t.add_columns(pa.field("c", pa.int8(), False)), "make them nullable"),
        (lambda t: t.add_columns(pa.field("_gen", pa.int8())), "reserved"),
        (lambda t: t.add_columns(DEFAULTED), "would be null in the rows that are there"),
        (lambda t: t.drop_columns("id"), "primary key"),
        (lambda t: t.drop_columns(["nope"]), "has no columns"),
        (lambda t: t.drop_columns([]), "name the columns"),
        (lambda t: t.rename_column("id", "key"), "primary key"),
        (lambda t: t.rename_column("a", "b"), "unique"),
        (lambda t: t.rename_column("a", "x.y"), "dot"),
        (lambda t: t.set_nullable("id"), "primary key"),
        (lambda t: t.set_nullable("a", False), "may still write nulls"),
        (lambda t: t.set_type("id", pa.int64()), "primary key"),
        (lambda t: t.set_type("nope", pa.int64()), "has no columns"),
        (lambda t: t.set_type("a", "int64"), "must be a type of Arrow"),
        (lambda t: t.set_type("a", pa.int32()), "int64, and can't become int32"),
        (lambda t: t.set_type("a", pa.uint64()), "can't become uint64"),
        (lambda t: t.set_type("a", pa.float64()), "can't become double"),
        (lambda t: t.set_type("b", pa.large_string()), "can't become large_string"),
        (lambda t: t.set_default("id", 1), "primary key"),
        (lambda t: t.set_default("nope", 1), "has no columns"),
        (lambda t: t.set_default("a", "x"), "'x' is not an int64"),
        (lambda t: t.set_default("a", 2**63), "is not an int64"),
        (lambda t: t.set_default("a", 1.5), "is not an int64"),
        (lambda t: mw.create_table("memory://x", pa.schema([*SCHEMA, DEFAULTED]), "c"), "its key"),
        (
            lambda t: mw.create_table(
                "memory://x", SCHEMA.append(DEFAULTED.with_type(pa.date32())), "id"
            ),
            "the default b'7' is not a date32",
        ),
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
