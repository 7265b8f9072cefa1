"""`apply` takes feeds as they come: this project's, Delta's, and Debezium's messages."""

from __future__ import annotations

import json
from base64 import b64encode
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])


def table_of(uri: str, schema: pa.Schema = SCHEMA) -> mw.Table:
    return mw.create_table(uri, schema, "id")


def rows_of(table: mw.Table) -> dict[int, Any]:
    return {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}


def envelope(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": 7}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_764_000_000}


def test_a_feed_goes_into_another_table(uri: str) -> None:
    table, copy = table_of(uri), table_of(f"{uri}_copy")
    with table.writer() as writer, copy.writer() as copied:
        writer.upsert([{"id": n, "n": n} for n in range(5)])
        writer.flush()
        writer.delete([1])
        writer.upsert([{"id": 2, "n": 20}])
        forms = [table.changes, lambda: table.changes().read_all().to_pylist()]
        for form in (*forms, lambda: table.changes().read_all().to_pydict()):
            copied.upsert([{"id": 1, "n": 0}])
            copied.apply(form(), op="_change")
            assert rows_of(copy) == rows_of(table)


def test_what_a_stream_has_beside_the_rows_is_left_out_unless_the_table_has_it(uri: str) -> None:
    own = pa.schema([*SCHEMA, pa.field("_position", pa.int64())])
    delta = {"_commit_version": 3, "_commit_timestamp": None, "_change_type": "insert"}
    cases: list[tuple[pa.Schema, dict[str, Any], str]] = [
        (SCHEMA, {"_change": "upsert", "_region": "r", "_generation": 1}, "_change"),
        (own, {"_change": "upsert", "_region": "r", "_position": 4}, "_change"),
        (SCHEMA, delta, "_change_type"),
    ]
    for place, (schema, beside, op) in enumerate(cases):
        table = table_of(f"{uri}{place}", schema)
        with table.writer() as writer:
            writer.apply([{"id": 1, "n": 2, **beside}], op=op)
        expected = {"id": 1, "n": 2, **{n: v for n, v in beside.items() if n in schema.names}}
        assert table.to_arrow().to_pylist() == [expected]
        with table.writer() as writer, pytest.raises(mw.InvalidCallError, match="_other"):
            writer.apply([{**expected, op: "insert", "_other": 1}], op=op)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("op", ["_op", "op"])
def test_messages_of_debezium_are_applied_as_they_come(uri: str, wrapped: bool, op: str) -> None:
    table = table_of(uri)
    messages: list[Any] = [
        None,
        envelope("r", after={"id": 1, "n": 1}),
        envelope("c", after={"id": 2, "n": 2}),
        envelope("u", before={"id": 1, "n": 1}, after={"id": 1, "n": 10}),
        envelope("d", before={"id": 2, "n": None}),
        None,
        envelope("c", after={"id": 3, "n": None}),
    ]
    if wrapped:
        messages = [one and {"schema": {"type": "struct"}, "payload": one} for one in messages]
        messages.append({"schema": None, "payload": None})
    with table.writer() as writer:
        assert writer.apply(messages, op=op).rows == 5
        assert writer.apply(iter(messages), op=op).rows == 5
        assert writer.apply([None], op=op).rows == 0
    assert rows_of(table) == {1: 10, 3: None}


def test_messages_without_their_row_are_refused(uri: str) -> None:
    table = table_of(uri)
    cases: list[tuple[list[Any], str]] = [
        ([envelope("d", after={"id": 1, "n": 1})], "message 0 has the op 'd' and no row in 'befo"),
        ([None, envelope("u", before={"id": 1, "n": 1})], "message 1 .* no row in 'after'"),
        ([envelope("x")], "'x'.* is not one of"),
        ([envelope("t")], "message 0 .* 't': .* delete_where"),
        ([{"op": "t", "source": {}, "ts_ms": 1}], "message 0 .* 't': .* delete_where"),
        ([{"payload": {"op": "m", "message": {"prefix": "p"}}}], "message 0 .* 'm': .* leave it"),
        ([{"_op": "t", "id": 1}], "row 0 has 't' .* delete_where"),
        ([{"key": {"id": 1}, "value": envelope("c", after={"id": 1, "n": 1})}], "message.'value'"),
        ([envelope("c", after={"id": 1, "m": 1})], "no columns .'m'"),
        ([{"payload": {"id": 1}}], "op='_op'"),
        ([{"op": ["u"], "after": {"id": 1, "n": 1}}], "is not one of"),
    ]
    with table.writer() as writer:
        for messages, said in cases:
            with pytest.raises(mw.InvalidCallError, match=said):
                writer.apply(messages)
    assert rows_of(table) == {}


PLACEHOLDER = "__debezium_unavailable_value"
ENCODED = {
    "base64": "abcd",
    "base64-url-safe": "_-8=",
    "hex": "abcd",
}
FULL = pa.schema(
    [
        *SCHEMA,
        pa.field("b", pa.binary()),
        pa.field("s", pa.string()),
        pa.field("l", pa.list_(pa.string())),
    ]
)


def of_full(key: int, **values: Any) -> dict[str, Any]:
    return {"id": key, "n": key, "b": None, "s": None, "l": None} | values


FORMS = ("messages", "wrapped", "when", "file")


def apply(
    writer: mw.TableWriter, folder: Path, messages: list[Any], form: str, **options: Any
) -> mw.WriteResult:
    """Applies Debezium's messages in one of `FORMS`."""
    if form == "when":
        return writer.apply(messages, when="true", **options)
    if form == "messages":
        return writer.apply(messages, **options)
    wrapped = [{"schema": None, "payload": message} for message in messages]
    if form == "wrapped":
        return writer.apply(wrapped, **options)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "topic.jsonl"
    path.write_text("\n".join(map(json.dumps, messages)))
    return writer.apply(path, **options)


@each("form", FORMS)
def test_an_update_that_changes_the_key_deletes_the_old_row(
    uri: str, tmp_path: Path, form: str
) -> None:
    schema = pa.schema([pa.field("k", pa.string(), False), *SCHEMA])
    table = mw.create_table(uri, schema, ["k", "id"], regions=[mw.bucket("k", 4)])

    def row(k: str, key: int, n: int | None) -> dict[str, Any]:
        return {"k": k, "id": key, "n": n}

    messages = [
        envelope("u", row("a", 1, None), row("b", 1, 1)),  # one part of the key
        envelope("u", row("a", 2, None), row("a", 3, 2)),
        envelope("u", row("a", 3, None), row("a", 4, 2)),  # moves on
        envelope("u", row("a", 5, None), row("a", 5, 50)),  # stays
        envelope("u", None, row("a", 6, 60)),  # does not tell
        envelope("u", {"k": None, "id": None, "n": None}, row("a", 7, 70)),
        envelope("u", row("x", 1, None), row("a", 8, 80)),  # there was no such row
        envelope("u", row("a", 9, 9), row("a", 10, 9)),  # swapped by a third
        envelope("u", row("b", 9, 10), row("a", 9, 10)),
    ]
    expected = {
        ("b", 1): 1, ("a", 4): 2, ("a", 5): 50, ("a", 6): 60, ("a", 7): 70, ("a", 8): 80,
        ("a", 9): 10, ("a", 10): 9,
    }  # fmt: skip
    with table.writer() as writer:
        writer.upsert([row("a", n, n) for n in (*range(1, 8), 9)] + [row("b", 9, 10)])
        for _ in range(2):  # as after a crash
            apply(writer, tmp_path, messages, form)
            found = {(r["k"], r["id"]): r["n"] for r in table.to_arrow().to_pylist()}
            assert found == expected


@each("form", FORMS)
def test_values_that_the_connector_did_not_send_are_refused(
    uri: str, tmp_path: Path, form: str
) -> None:
    table = table_of(uri, FULL)
    encoded = b64encode(PLACEHOLDER.encode()).decode()
    unsent: list[tuple[str, Any]] = [("s", PLACEHOLDER), ("b", encoded), ("l", ["x", PLACEHOLDER])]
    with table.writer() as writer:
        for name, value in unsent:
            message = envelope("u", of_full(1), of_full(1, **{name: value}))
            with pytest.raises(mw.InvalidCallError, match=f"'{name}'.*REPLICA IDENTITY FULL"):
                apply(writer, tmp_path, [message], form, binary="base64")
            with pytest.raises(mw.InvalidCallError, match=f"'{name}'.*REPLICA IDENTITY FULL"):
                writer.apply(
                    [{"__op": "u", **of_full(1, **{name: value})}], op="__op", binary="base64"
                )
        apply(writer, tmp_path, [envelope("d", of_full(1, s=PLACEHOLDER))], form)
    assert table.count_rows() == 0


@each("form", FORMS)
def test_texts_of_bytes_are_read_as_the_call_says(uri: str, tmp_path: Path, form: str) -> None:
    table = table_of(uri, FULL)
    bytes_of = {"base64": b"\x69\xb7\x1d", "base64-url-safe": b"\xff\xef", "hex": b"\xab\xcd"}
    with table.writer() as writer:
        for encoding, text in ENCODED.items():
            message = envelope("c", after=of_full(1, b=text))
            with pytest.raises(mw.InvalidCallError, match=r"'b'.*base64"):
                apply(writer, tmp_path, [message], form)
            apply(writer, tmp_path, [message], form, binary=encoding)
            assert table.get(1)["b"].to_pylist() == [bytes_of[encoding]]
            flat = {"_op": "u", **of_full(1, b=text)}
            writer.apply([flat], binary=encoding)
            assert table.get(1)["b"].to_pylist() == [bytes_of[encoding]]
        with pytest.raises(mw.InvalidCallError, match="not base64"):
            message = envelope("c", after=of_full(1, b="ab"))
            apply(writer, tmp_path, [message], form, binary="base64")
        with pytest.raises(mw.InvalidCallError, match="binary='utf8'"):
            apply(writer, tmp_path, [envelope("d", of_full(1))], form, binary="utf8")


def unscaled(value: str, scale: int) -> str:
    """A decimal as Debezium's mode `precise` has it."""
    digits = int(Decimal(value).scaleb(scale, Context(prec=80)))
    return b64encode(digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)).decode()


DECIMALS = [
    (pa.decimal128(10, 2), "-26588.24"),  # "1234"
    (pa.decimal128(10, 2), "12.50"),
    (pa.decimal128(20, 0), "-12345678901234567890"),
    (pa.decimal128(38, 30), "12345678.123456789012345678901234567890"),
    (pa.decimal256(76, 38), "-1." + "7" * 38),
    (pa.decimal128(5, -2), "-100"),
    (pa.decimal128(5, 2), "0.00"),
]


@each("form", FORMS)
def test_texts_of_decimals_are_read_as_the_call_says(uri: str, tmp_path: Path, form: str) -> None:
    assert unscaled("-26588.24", 2) == "1234"
    kinds = [pa.field(f"d{n}", kind) for n, (kind, _) in enumerate(DECIMALS)]
    table = mw.create_table(uri, pa.schema([pa.field("id", pa.int64(), False), *kinds]), "id")
    texts = {f"d{n}": text for n, (_, text) in enumerate(DECIMALS)}
    encoded = {f"d{n}": unscaled(text, kind.scale) for n, (kind, text) in enumerate(DECIMALS)}
    expected = {"id": 1, **{name: Decimal(text) for name, text in texts.items()}}
    given = {"precise": encoded, "string": texts}
    with table.writer() as writer:
        for mode, values in given.items():
            row = {"id": 1, **values}
            message = envelope("c", after=row)
            with pytest.raises(mw.InvalidCallError, match=r"'d0'.*decimal=.precise.*handling.mode"):
                apply(writer, tmp_path, [message], form)
            apply(writer, tmp_path, [message], form, decimal=mode)
            assert table.get(1).to_pylist() == [expected]
            apply(writer, tmp_path, [envelope("d", before=row)], form, decimal=mode)
            assert table.count_rows() == 0
            writer.apply([{"_op": "u", **row}], decimal=mode)
            assert table.get(1).to_pylist() == [expected]
        row = {"id": 1, **texts}
        with pytest.raises(mw.InvalidCallError, match=r"'d0'.* not base64.*decimal=.string"):
            apply(writer, tmp_path, [envelope("c", after=row)], form, decimal="precise")
        with pytest.raises(mw.InvalidCallError, match="decimal='double'"):
            apply(writer, tmp_path, [envelope("c", after=row)], form, decimal="double")
        writer.apply([{"_op": "u", **row}])  # no envelope
        assert table.get(1).to_pylist() == [expected]
