"""Columns of JSON: a value has one text, from the call that writes it on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
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
        again = writer.upsert([{"id": 1, "j": given}], when="t.j <> s.j")
        assert (again.rows, again.skipped) == (0, 1)


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
