"""`apply` takes feeds as they come: this project's, Delta's, and Debezium's messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw

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
        ([envelope("t")], "'t'.* is not one of"),
        ([envelope("c", after={"id": 1, "m": 1})], "no columns .'m'"),
        ([{"payload": {"id": 1}}], "op='_op'"),
        ([{"op": ["u"], "after": {"id": 1, "n": 1}}], "is not one of"),
    ]
    with table.writer() as writer:
        for messages, said in cases:
            with pytest.raises(mw.InvalidCallError, match=said):
                writer.apply(messages)
    assert rows_of(table) == {}
