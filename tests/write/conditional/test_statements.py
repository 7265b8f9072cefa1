"""Statements against a dict of rows: what they write, count and refuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.soak import IS_SOAK

SCHEMA = pa.schema(
    [
        pa.field("s", pa.string()),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("at", pa.int64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
KEY = ("tenant", "id")
COLUMNS = [name for name in SCHEMA.names if name not in KEY]
Key = tuple[str, int]
Row = dict[str, Any]
Rows = dict[Key, Row]

WHEN = "t.at IS NULL OR t.at <= s.at"
SET = {"n": "coalesce(t.n, 0) + coalesce(s.n, 0)", "s": "t.s || s.s"}
WHERE = "n > 3 AND tenant = 'b'"


@pytest.fixture
def table(uri: str) -> mw.Table:
    return mw.create_table(uri, SCHEMA, primary_key=KEY, regions="identity(tenant), bucket(id, 2)")


def applies(old: Row, new: Row) -> bool:
    return old["at"] is None or (new["at"] is not None and old["at"] <= new["at"])


def folded(old: Row, new: Row) -> Row:
    both = old["s"] is not None and new["s"] is not None
    return {
        **new,
        "n": (old["n"] or 0) + (new["n"] or 0),
        "s": old["s"] + new["s"] if both else None,
    }


def upserted(model: Rows, rows: list[Row], when: bool, by: bool) -> int:
    """Upsert rows, which may lack columns, into the model; how many were skipped."""
    skipped = 0
    for row in rows:
        key = row["tenant"], row["id"]
        old = model.get(key)
        new = {**dict.fromkeys(SCHEMA.names), **(old or {}), **row}
        if old is not None and when and not applies(old, new):
            skipped += 1
            continue
        model[key] = folded(old, new) if old is not None and by else new
    return skipped


def meets(row: Row) -> bool:
    return row["n"] is not None and row["n"] > 3 and row["tenant"] == "b"


def live(table: mw.Table) -> Rows:
    rows = table.to_arrow().to_pylist()
    found = {(row["tenant"], row["id"]): row for row in rows}
    assert len(found) == len(rows)
    return found


class History:
    """Random statements over a table and its model."""

    def __init__(self, table: mw.Table, seed: int) -> None:
        self.random = Random(seed)
        self.table = table
        self.model: Rows = {}

    def value(self, column: str) -> Any:
        random = self.random
        if random.random() < 0.2:
            return None
        if column == "tags":
            return [random.choice("xyz") for _ in range(random.randrange(3))]
        return random.choice("pqr'") if column == "s" else random.randrange(10)

    def key(self) -> Key:
        return self.random.choice("abc"), self.random.randrange(6)

    def rows(self, columns: list[str]) -> list[Row]:
        keys = [self.key() for _ in range(self.random.randrange(1, 12))]
        return [
            {"tenant": t, "id": i, **{name: self.value(name) for name in columns}} for t, i in keys
        ]

    def upsert(self, writer: mw.TableWriter) -> None:
        when, by = self.random.random() < 0.5, self.random.random() < 0.5
        columns = COLUMNS
        if self.random.random() < 0.6:
            columns = self.random.sample(COLUMNS, self.random.randrange(len(COLUMNS)))
            if when or by:  # the expressions name these
                columns = list(dict.fromkeys([*columns, "n", "s", "at"]))
        rows = self.rows(columns)
        skipped = upserted(self.model, rows, when, by)
        given = pa.Table.from_pylist(rows, pa.schema([SCHEMA.field(n) for n in rows[0]]))
        done = writer.upsert(given, when=WHEN if when else None, set=SET if by else None)
        assert done.skipped == skipped

    def insert(self, writer: mw.TableWriter) -> None:
        rows = self.rows(COLUMNS)
        keys = [(row["tenant"], row["id"]) for row in rows]
        wrong = {key for key in keys if key in self.model} or {
            key for key in keys if keys.count(key) > 1
        }
        if wrong:
            with pytest.raises(mw.KeysExistError) as raised:
                writer.insert(rows)
            again = {key for key in keys if keys.count(key) > 1}
            assert raised.value.keys == again or raised.value.keys == wrong
        else:
            assert writer.insert(rows).rows == len(rows)
            self.model.update({(row["tenant"], row["id"]): row for row in rows})

    def delete(self, writer: mw.TableWriter) -> None:
        keys = [self.key() for _ in range(5)]
        there = {key for key in keys if key in self.model}
        gone = {key for key in there if (self.model[key]["n"] or 0) > 4}
        done = writer.delete(keys, when="t.n > 4")
        missing = len(set(keys)) - len(there)
        assert (done.rows, done.skipped, done.not_found) == (
            len(gone),
            len(there) - len(gone),
            missing,
        )
        for key in gone:
            del self.model[key]

    def delete_where(self, writer: mw.TableWriter) -> None:
        gone = [key for key, row in self.model.items() if meets(row)]
        assert writer.delete_where(WHERE).rows == len(gone)
        for key in gone:
            del self.model[key]

    def update(self, writer: mw.TableWriter) -> None:
        chosen = [key for key, row in self.model.items() if meets(row)]
        done = writer.update({"n": "n - 1", "at": "id", "tags": "NULL"}, where=WHERE)
        assert done.rows == len(chosen)
        for key in chosen:
            old = self.model[key]
            self.model[key] = {**old, "n": old["n"] - 1, "at": old["id"], "tags": None}

    def apply(self, writer: mw.TableWriter) -> None:
        rows = [{**row, "op": self.random.choice("cudr")} for row in self.rows(COLUMNS)]
        assert writer.apply(rows, op="op").rows == len(rows)
        for row in rows:
            key = row["tenant"], row["id"]
            if row.pop("op") == "d":
                self.model.pop(key, None)
            else:
                self.model[key] = row

    def step(self, writer: mw.TableWriter) -> None:
        kinds = (self.insert, self.delete, self.delete_where, self.update, self.apply)
        self.random.choice([self.upsert, *kinds, self.upsert])(writer)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "seed", [0, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3)]]
)
def test_statements_do_to_a_table_what_they_do_to_a_dict(
    table: mw.Table, seed: int, durable: bool
) -> None:
    """Rows lie in memory, in generations and in the base table."""
    history = History(table, seed)
    with table.writer(durable=durable) as writer:
        for step in range(60 if IS_SOAK else 25):
            history.step(writer)
            if history.random.random() < 0.1:
                writer.flush()
            if history.random.random() < 0.05:
                table.merge()
            assert live(table) == history.model, f"step {step}"


ROWS = [
    {"s": "x", "tenant": "a", "id": 1, "n": 1, "at": 1, "tags": None},
    {"s": "y", "tenant": "b", "id": 2, "n": 5, "at": 1, "tags": ["t"]},
]

Call = Callable[[mw.TableWriter], Any]


def upsert(rows: list[Row] | None = None, **options: Any) -> Call:
    return lambda writer: writer.upsert(ROWS[:1] if rows is None else rows, **options)


@each(
    "call, text",
    [
        (upsert(when="t.nn > 1"), "t.nn > 1"),
        (upsert(when="n > 1"), "write t.name for a column of the existing row"),
        (upsert(when="t.n"), "non-boolean"),
        (upsert(when="t.n > 1 OR"), "t.n > 1 OR"),
        (upsert(when="true) OR (true"), "is not an expression"),
        (upsert(when=b"t.n > 1"), "not a SQL expression"),
        (upsert(set={"n": "t.n + 3000000000"}), "column 'n'"),
        (upsert(set={"n": "'a'"}), "column 'n'"),
        (upsert(set={"n": "sum(t.n)"}), "sum"),
        (upsert(set={"n": "max(t.n) OVER ()"}), "over one row"),
        (upsert(when="row_number() OVER (ORDER BY t.n) = 1"), "row_number"),
        (upsert(set={"m": "1"}), "no columns ['m']"),
        (upsert(set={"id": "1"}), "primary key columns ['id']"),
        (upsert(missing="none"), "missing='none'"),
        (upsert([{"tenant": "a", "n": 1}]), "primary key column 'id'"),
        (upsert([{"tenant": "a", "id": 1}, {"tenant": "a", "id": 2, "n": 1}]), "row 0 lacks"),
        (upsert([{"tenant": "a", "id": None, "n": 1}]), "null"),
        (upsert([{"tenant": "a", "id": 1, "n": "a"}]), "column 'n'"),
        (upsert([{"tenant": "a", "id": 1, "m": 1}]), "no columns ['m']"),
        (upsert([{"tenant": "a", "id": 1}], missing="error"), "lack"),
        (lambda w: w.insert([*ROWS, *ROWS]), "more than once"),
        (lambda w: w.insert(ROWS), "keys to insert exist"),
        (lambda w: w.insert([{"tenant": "z", "id": 1}], missing="error"), "lack"),
        (lambda w: w.delete([("a", 1)], when="n > 1"), "n > 1"),
        (lambda w: w.delete_where("m > 1"), "m"),
        (lambda w: w.delete_where(None), "None"),
        (lambda w: w.update({}), "name the columns"),
        (lambda w: w.update({"n": "m"}), "m"),
        (lambda w: w.update({"tenant": "'x'"}), "primary key"),
        (lambda w: w.update({"n": "1"}, where="n >"), "n >"),
        (lambda w: w.apply([{**ROWS[0], "_op": "x"}]), "'x'"),
        (lambda w: w.apply(ROWS), "_op"),
    ],
)
def test_a_call_that_does_not_fit_is_refused_and_nothing_is_written(
    table: mw.Table, call: Call, text: str
) -> None:
    with table.writer() as writer:
        writer.upsert(ROWS)
        before = live(table)
        with pytest.raises(mw.InvalidCallError) as raised:
            call(writer)
        assert text in str(raised.value)
        assert live(table) == before


def test_a_new_row_needs_its_required_columns(uri: str) -> None:
    fields = [pa.field("id", pa.int64(), False), pa.field("n", pa.int64(), False)]
    table = mw.create_table(uri, pa.schema([*fields, pa.field("s", pa.string())]), primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1, "s": "x"}])
        writer.upsert([{"id": 1, "s": "y"}])
        with pytest.raises(mw.InvalidCallError, match=r"\['n'\] are missing, and the key 2 is new"):
            writer.upsert([{"id": 1, "s": "z"}, {"id": 2, "s": "z"}])
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 1, "s": "y"}]


@pytest.mark.parametrize(
    ("codes", "op"),
    [
        (["insert", "update", "delete", "upsert"], "_op"),
        (["r", "u", "d", "c"], "op"),
        (["+I", "+U", "-D", "+I"], "kind"),
        (["insert", "update_postimage", "delete", "insert"], "_change_type"),
    ],
)
def test_changes_are_applied_in_their_order_and_rows_before_updates_left_out(
    table: mw.Table, codes: list[str], op: str
) -> None:
    new = [{**ROWS[0], "n": n} for n in range(4)]
    rows = [{**row, op: code} for row, code in zip(new, codes, strict=True)]
    before: Mapping[str, str] = {"+U": "-U", "update_postimage": "update_preimage"}
    if codes[1] in before:
        rows.insert(1, {**new[0], op: before[codes[1]]})
    with table.writer() as writer:
        assert writer.apply(rows[:-1], op=op).rows == 3
        assert live(table) == {}
        writer.apply(
            pa.Table.from_pylist(rows[-1:], pa.schema([*SCHEMA, (op, pa.string())])), op=op
        )
    assert live(table) == {("a", 1): new[3]}


FORMS: dict[str, Callable[[list[Row]], Any]] = {
    "dicts": lambda rows: rows,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "table": lambda rows: pa.Table.from_pylist(rows, pa.schema([*SCHEMA, ("op", pa.string())])),
    "batches": lambda rows: FORMS["table"](rows).to_batches(max_chunksize=1),
}


@pytest.mark.parametrize("form", FORMS)
def test_changes_are_what_upserts_and_deletes_are_in_any_form(table: mw.Table, form: str) -> None:
    rows = [{**ROWS[at % 2], "n": at, "op": "d" if at % 3 == 2 else "u"} for at in range(7)]
    with table.writer() as writer:
        assert writer.apply(FORMS[form](rows), op="op").rows == 7
        applied = live(table)
        for row in rows:
            if row["op"] == "d":
                writer.delete([(row["tenant"], row["id"])])
            else:
                writer.upsert([{name: row[name] for name in SCHEMA.names}])
        assert live(table) == applied


def test_a_delete_among_changes_needs_its_key_alone(table: mw.Table) -> None:
    key = {"tenant": "a", "id": 1}
    with table.writer() as writer:
        writer.upsert(ROWS)
        writer.apply([{**key, "_op": "delete"}, {**ROWS[1], "n": 6, "_op": "c"}])
        assert live(table) == {("b", 2): {**ROWS[1], "n": 6}}
        writer.apply([{**key, "_op": "d"}])
        for wrong in ([{**key, "_op": "u"}], [{**ROWS[0], "typo": 1, "_op": "u"}], 5, None, [5]):
            with pytest.raises(mw.InvalidCallError):
                writer.apply(wrong)
        with pytest.raises(mw.InvalidCallError, match="row 0"):
            writer.apply([{**ROWS[0], "_op": ["c"]}])


MANUAL: list[Call] = [
    upsert([{"tenant": "a", "id": 1, "n": 1}]),
    upsert(ROWS, when="t.n > 1"),
    upsert(ROWS, set={"n": "t.n"}),
    lambda w: w.insert(ROWS),
    lambda w: w.delete([("a", 1)], when="t.n > 1"),
    lambda w: w.delete_where("true"),
    lambda w: w.update({"n": "1"}),
]


@pytest.mark.parametrize("call", MANUAL)
def test_regions_given_by_hand_take_whole_rows_alone(uri: str, call: Call) -> None:
    """The row of a key may be in another region than the writer's."""
    table = mw.create_table(uri, SCHEMA, primary_key=KEY, regions=mw.manual())
    with table.writer(region="one") as one, table.writer(region="two") as two:
        one.upsert(ROWS)
        with pytest.raises(mw.UnsupportedError, match="are manual"):
            call(two)
        two.upsert([{"tenant": "z", "id": 1}], missing="null")
    assert table.count_rows() == 3


def test_values_are_computed_for_rows_that_meet_the_condition_alone(table: mw.Table) -> None:
    rows = [{**ROWS[0], "id": at, "n": at} for at in range(4)]
    given = [{**row, "n": 12} for row in rows]
    with table.writer() as writer:
        writer.upsert(rows)
        assert writer.update({"n": "12 / n"}, where="n <> 0").rows == 3
        assert [live(table)["a", at]["n"] for at in range(4)] == [0, 12, 6, 4]
        done = writer.upsert(given, when="t.n <> 0", set={"n": "s.n / t.n"})
        assert (done.rows, done.skipped) == (3, 1)
        assert [live(table)["a", at]["n"] for at in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        upsert(when="t.typo > 1"),
        upsert(set={"n": "nofn(1)"}),
        lambda w: w.delete([("a", 1)], when="t.n >"),
        lambda w: w.delete_where("typo > 1"),
        lambda w: w.update({"n": "nofn(n)"}),
    ],
)
def test_an_expression_is_looked_at_where_no_row_is(table: mw.Table, call: Call) -> None:
    with table.writer() as writer, pytest.raises(mw.InvalidCallError):
        call(writer)
    assert table.count_rows() == 0


def test_columns_added_meanwhile_are_not_nulled(table: mw.Table) -> None:
    with table.writer() as writer:
        writer.upsert(ROWS)
        writer.flush()
        table.merge()
        lance.dataset(table.uri).add_columns(pa.field("x", pa.int64()))
        lance.dataset(table.uri).update({"x": "id * 10"})
        with pytest.raises(mw.ReopenError, match="open a new one"):
            writer.upsert([{"tenant": "a", "id": 1, "n": 1}])
        with pytest.raises(mw.ReopenError, match="open a new one"):
            writer.update({"n": "1"})
    assert [row["x"] for row in live(table).values()] in ([10, 20], [20, 10])
