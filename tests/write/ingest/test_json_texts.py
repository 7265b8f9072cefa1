"""Columns of JSON: a value has one text, from the call that writes it on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datafusion
import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm, RowReader
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("j", pa.json_())])

# Text -> the text of a table.
FORMS = {
    '{"b": 1, "a": [1, 2 ]}': '{"a":[1,2],"b":1}',
    '{"\U00010000": 1, "\uffff": 2, "": 3}': '{"":3,"\uffff":2,"\U00010000":1}',
    "18446744073709551615": "18446744073709551615",
    "-9223372036854775808": "-9223372036854775808",
    "-0": "0",
    "1.10": "1.1",
    "1e5": "100000.0",
    "1E22": "1e+22",
    "0.10000000000000001": "0.1",
    "0." + "0" * 40: "0.0",
    '"\\u00e9\\ud83d\\ude00"': '"é😀"',
    '"\\\\ud800 \\\\u"': '"\\\\ud800 \\\\u"',
    ' "\\/" ': '"/"',
    "null": "null",
}

# Values that a double or a text would not hold.
REFUSED = {
    "18446744073709551616": "beyond 64 bits",
    "-9223372036854775809": "beyond 64 bits",
    '{"id": [123456789012345678901]}': "beyond 64 bits",
    "1" * 5_000: "beyond 64 bits",
    "1e999": "beyond the range",
    "-1e400": "beyond the range",
    "1e-400": "more digits",
    "0.12345678901234567890": "more digits",
    '"\\ud800"': "surrogate",
    '{"\\udc00": 1}': "surrogate",
}


def through_lance(texts: list[str | None]) -> list[str | None]:
    written = lance.write_dataset(pa.table({"j": pa.array(texts, pa.json_())}), "memory://")
    return written.to_table()["j"].to_pylist()


def random_value(rng: random.Random, depth: int = 3) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind == 6:
        return [random_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 7:
        return {random_text(rng): random_value(rng, depth - 1) for _ in range(rng.randrange(4))}
    bits = rng.randrange(64)
    floats = (rng.uniform(-1, 1) * 10.0 ** rng.randrange(-320, 308), rng.random(), float(bits))
    values = (None, True, random_text(rng), rng.randrange(2**bits), -rng.randrange(2**bits))
    return rng.choice(floats) if kind == 5 else values[kind]


def random_text(rng: random.Random) -> str:
    letters = 'ab"\\/\n\x00\x7f é\u2028\ufffd\U0001f600'
    return "".join(rng.choice(letters) for _ in range(rng.randrange(5)))


def written_as(rng: random.Random, value: Any) -> str:
    return json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice([None, 1]))


def test_a_text_is_the_same_in_memory_in_a_generation_and_in_the_base(uri: str) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    given = [*FORMS, *(written_as(rng, random_value(rng)) for _ in range(300)), None]
    expected = through_lance(given)
    assert expected[: len(FORMS)] == list(FORMS.values())
    assert [t and json.loads(t) for t in expected] == [t and json.loads(t) for t in given]
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": range(len(given)), "j": given})
        steps: list[Callable[[], object]] = [lambda: None, table.flush, table.merge]
        for step in steps:
            step()
            with mw.open_table(uri) as again:
                for reader in (table, again):
                    rows = reader.to_arrow().sort_by("id")["j"].to_pylist()
                    assert rows == expected, seed
            assert table.count_rows('j = \'{"a":[1,2],"b":1}\'') == 1
        writer.upsert(table.to_arrow())
        assert table.to_arrow().sort_by("id")["j"].to_pylist() == expected, seed
    feed = table.changes().read_all().to_pylist()
    assert all(change["j"] == expected[change["id"]] for change in feed)


def test_every_way_to_write_gives_that_text(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    given = '{"b": 1, "a": 2}'
    ways: list[Callable[[mw.TableWriter], object]] = [
        lambda w: w.upsert([{"id": 1, "j": given}]),
        lambda w: w.insert([{"id": 1, "j": given}]),
        lambda w: w.upsert([{"id": 1, "j": given}], when="t.j <> s.j"),
        lambda w: w.apply([{"_op": "u", "id": 1, "j": given}], when="t.id = s.id"),
        lambda w: mw.sql(context, f"INSERT INTO t VALUES (1, '{given}')"),
        lambda w: mw.sql(
            context,
            "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id "
            f"WHEN NOT MATCHED THEN INSERT (id, j) VALUES (s.id, '{given}')",
        ),
    ]
    with table.writer() as writer:
        for way in ways:
            way(writer)
            assert table.get(1)["j"].to_pylist() == ['{"a":2,"b":1}']
            writer.delete([1])
        writer.upsert([{"id": 1, "j": "1"}])
        mw.sql(context, f"UPDATE t SET j = '{given}' WHERE id = 1")
        for statement in (
            f"INSERT INTO t VALUES (2, '{given}')",
            f"UPDATE t SET j = '{given}' WHERE id = 2",
            "DELETE FROM t WHERE id = 2",
        ):
            returned = mw.sql(context, f"{statement} RETURNING j, j = '{given}' AS as_given")
            assert returned.to_pylist() == [{"j": '{"a":2,"b":1}', "as_given": False}]
        again = writer.upsert([{"id": 1, "j": given}], when="t.j <> s.j")
        assert (again.rows, again.skipped) == (0, 1)


TEXT = '{"b": 1, "a": 2}'
# Rows with a text, as Arrow has it in columns of these types.
FRAMES: dict[str, Callable[[list[str]], Any]] = {
    **{
        str(kind): lambda texts, kind=kind: pa.table({"id": [1], "j": pa.array(texts, kind)})
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    "dictionary": lambda texts: pa.table({"id": [1], "j": pa.array(texts).dictionary_encode()}),
    "runs": lambda texts: pa.table({"id": [1], "j": pc.run_end_encode(pa.array(texts))}),
    "chunks": lambda texts: pa.table(
        {"id": [1], "j": pa.chunked_array([texts[:0], texts], pa.string())}
    ),
    "large JSON": lambda texts: pa.table(
        {"id": [1], "j": pa.array(texts, pa.json_(pa.large_string()))}
    ),
    "pandas": lambda texts: pd.DataFrame({"id": [1], "j": texts}),
    "polars": lambda texts: pl.DataFrame({"id": [1], "j": texts}),
    "dict": lambda texts: {"id": [1], "j": pa.array(texts)},
}


@each("form", FRAMES)
def test_columns_of_texts_are_taken_and_checked(uri: str, form: str, tmp_path: Path) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    sources: list[Callable[[list[str]], Any]] = [FRAMES[form]]
    if form in ("string", "large_string"):  # files as well
        file = str(tmp_path / "x.parquet")
        sources.append(lambda texts: pq.write_table(FRAMES[form](texts), file) or file)
    with table.writer() as writer:
        for rows in sources:
            for when in (None, "t.j <> s.j"):
                assert writer.upsert(rows([TEXT]), when=when).rows == (when is None)
                assert table.get(1)["j"].to_pylist() == ['{"a":2,"b":1}']
                with pytest.raises(mw.InvalidCallError, match=r"'j'.*is not JSON"):
                    writer.upsert(rows(["{bad"]), when=when)
            writer.delete([1])


def test_rows_of_the_table_and_expressions_are_taken(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    given = [{"id": 1, "j": TEXT}, {"id": 2, "j": None}]
    stored = '{"a":2,"b":1}'
    row = {"id": 1, "j": "[1, 2]"}
    ways: list[tuple[str, Callable[[mw.TableWriter], object]]] = [
        (stored, lambda w: w.upsert(table.to_pandas())),
        (stored, lambda w: w.upsert(table.to_polars())),
        (stored, lambda w: w.upsert(table.to_arrow())),
        ("{}", lambda w: w.update({"j": "'{ }'"}, where="id = 1")),
        (stored, lambda w: w.upsert([row], set={"j": "coalesce(t.j, s.j)"})),
        ("[1,2]", lambda w: w.upsert([row], set={"j": "s.j"})),
        ("{}", lambda w: w.upsert([row, row], set={"j": "'{ }'"}, when="t.j <> '{}'")),
    ]
    with table.writer() as writer:
        for read, way in ways:
            writer.upsert(given)
            way(writer)
            assert table.get(1)["j"].to_pylist() == [read]
            assert table.get(2)["j"].to_pylist() == [None]
        with pytest.raises(mw.InvalidCallError, match=r"'j'.*is not JSON"):
            writer.update({"j": "'{bad'"})


def test_a_distributed_write_takes_texts(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    rows, form = pa.table({"id": [1], "j": [TEXT]}), RowForm()
    form.check(rows.schema, table.info)
    (batch,) = rows.to_batches()
    read = RowReader(form, table.info).read(pa.Table.from_batches([batch]))
    assert read["j"].to_pylist() == ['{"a":2,"b":1}']
    with pytest.raises(mw.InvalidCallError, match="'j' is int64"):
        form.check(pa.schema({"id": pa.int64(), "j": pa.int64()}), table.info)


@each("value", [{"a": 1}, [1], True, 1, 1.5])
def test_a_value_that_is_no_text_is_refused_with_the_way_to_make_one(uri: str, value: Any) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        for rows in ([{"id": 1, "j": value}], pd.DataFrame({"id": [1], "j": [value]})):
            with pytest.raises(mw.InvalidCallError, match=r"'j'.*json\.dumps\(value\)"):
                writer.upsert(rows)
        with pytest.raises(mw.InvalidCallError, match=r"'j'.*json\.dumps\(value\)"):
            table.set_default("j", value)


@each("text", REFUSED)
def test_a_value_that_would_change_is_refused(uri: str, text: str) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    with table.writer() as writer:
        for when in (None, "t.id = s.id"):
            with pytest.raises(mw.InvalidCallError, match=f"'j'.*{REFUSED[text]}"):
                writer.upsert([{"id": 1, "j": text}], when=when)
    assert table.count_rows() == 0


def test_a_default_has_that_text_too(uri: str) -> None:
    table = mw.create_table(uri, SCHEMA.append(pa.field("n", pa.int64())), "id")
    for text in ("{bad", "18446744073709551616"):
        with pytest.raises(mw.InvalidCallError, match="'j'"):
            table.set_default("j", text)
    table.set_default("j", '{"b": 1, "a": 2}')
    with table.writer() as writer:
        writer.insert([{"id": 1, "n": 1}])
    assert table.get(1)["j"].to_pylist() == ['{"a":2,"b":1}']
    table.set_default("j", None)
