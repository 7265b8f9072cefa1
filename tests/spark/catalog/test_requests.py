"""What the jar's catalog asks for, without Spark's processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
    YearMonthIntervalType,
)

import memwal_sql as mw
from memwal_sql.spark.driver.catalog import CATALOG
from tests.each import each

SECRET = "a-very-secret-value"
COLUMNS = StructType().add("id", LongType()).add("name", StringType(), True, {"comment": "full"})


def ask(root: Path | str, operation: str, name: str | None = None, **request: Any) -> Any:
    """The answer, as JSON carries it."""
    request |= {"root": str(root), "storage": {"user_agent": SECRET}}
    if name is not None:
        request["name"] = name
    return json.loads(json.dumps(CATALOG[operation](json.loads(json.dumps(request)))))


def create(root: Path, name: str, columns: StructType = COLUMNS, **request: Any) -> Any:
    defaults: dict[str, Any] = {
        "mode": "create",
        "empty": True,
        "columns": columns.json(),
        "defaults": {},
        "partitions": [],
        "properties": {"primaryKey": "id", "owner": "somebody"},
        "constraints": [],
        "provider": "parquet",
        "options": {},
    }
    return ask(root, "create_table", name, **(defaults | request))


def alter(root: Path, name: str, *changes: dict[str, Any]) -> Any:
    return ask(root, "alter_table", name, changes=changes)


def new(name: str, kind: DataType, nullable: bool = True, **change: Any) -> dict[str, Any]:
    columns = StructType().add(name, kind, nullable).json()
    values = {"position": None, "default": None} | change
    return {"kind": "add", "column": [name], "columns": columns, **values}


def typed(name: str, kind: DataType) -> dict[str, Any]:
    return {"kind": "type", "column": [name], "columns": StructType().add(name, kind).json()}


def test_a_table_is_made_described_and_dropped(tmp_path: Path) -> None:
    columns = (
        StructType()
        .add("id", LongType())
        .add("name", StringType(), False, {"comment": "full"})
        .add("n", IntegerType())
        .add("day", DateType())
        .add("price", DecimalType(10, 2))
        .add("word", StringType())
        .add("at", TimestampType())
    )
    made = create(
        tmp_path,
        "t",
        columns,
        defaults={
            "n": "7",
            "day": "2026-01-31",
            "price": "1.50",
            "word": "it's \\",
            "at": "2026-01-31T00:00:00Z",
        },
        partitions=[{"name": "bucket", "columns": ["id"], "numbers": ["8"]}],
        properties={"PRIMARYKEY": "id", "comment": "all of them", "owner": "somebody"},
    )
    assert made.pop("replaces") is False
    found = ask(tmp_path, "load_table", "t")
    assert found == made | {"moment": {}}
    assert found["primaryKey"] == ["id"]
    assert found["regions"] == "bucket(id, 8)"
    assert found["partitions"] == [{"name": "bucket", "columns": ["id"], "numbers": [8]}]
    assert found["comment"] == "all of them"
    assert found["path"] == f"{tmp_path}/t.lance"
    fields = {field.name: field for field in StructType.fromJson(json.loads(found["columns"]))}
    assert [name for name, field in fields.items() if not field.nullable] == ["id", "name"]
    assert fields["name"].metadata == {"comment": "full"}
    shown = {name: (field.metadata or {}).get("CURRENT_DEFAULT") for name, field in fields.items()}
    assert shown == {
        "id": None,
        "name": None,
        "n": "7",
        "day": "CAST('2026-01-31' AS date)",
        "price": "CAST('1.50' AS decimal(10,2))",
        "word": "'it\\'s \\\\'",
        "at": "CAST('2026-01-31 00:00:00.000000Z' AS timestamp)",
    }
    table = mw.open_table(found["path"])
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "name": ["a"]}))
    (row,) = table.to_arrow().to_pylist()
    assert (row["n"], row["word"], str(row["price"])) == (7, "it's \\", "1.50")
    assert SECRET not in json.dumps(found)
    assert ask(tmp_path, "list_tables") == {"names": ["t"]}
    assert create(tmp_path, "t") == {"found": True, "exists": True}
    assert ask(tmp_path, "drop_table", "t") == {"found": True}
    assert ask(tmp_path, "drop_table", "t") == {"found": False}
    assert ask(tmp_path, "load_table", "t") == {"found": False}
    assert ask(tmp_path, "list_tables") == {"names": []}


REGIONS: list[tuple[list[dict[str, Any]], str]] = [
    ([], "unsharded()"),
    ([{"name": "identity", "columns": ["id"], "numbers": []}], "identity(id)"),
    ([{"name": "bucket", "columns": ["id", "name"], "numbers": [4]}], "multi_bucket(id, name, 4)"),
    ([{"name": "lance_bucket", "columns": ["id"], "numbers": [4]}], "lance_bucket(id, 4)"),
    (
        [
            {"name": "truncate", "columns": ["name"], "numbers": [3]},
            {"name": "bucket", "columns": ["id"], "numbers": [2]},
        ],
        "truncate(name, 3), bucket(id, 2)",
    ),
]


@each("partitions, regions", REGIONS)
def test_partitions_are_regions(
    tmp_path: Path, partitions: list[dict[str, Any]], regions: str
) -> None:
    made = create(
        tmp_path, "t", partitions=partitions, properties={"primaryKey": "id, name"}, mode="replace"
    )
    assert made == {"found": False}
    made = create(tmp_path, "t", partitions=partitions, properties={"primaryKey": "id, name"})
    assert (made["regions"], made["primaryKey"]) == (regions, ["id", "name"])
    # What is shown makes the same table again.
    shown = {"primaryKey": "id, name", "regions": made["regions"], "version": "3"}
    key = [{"primaryKey": ["id", "name"], "text": ""}]
    again = create(tmp_path, "u", partitions=made["partitions"], properties=shown, constraints=key)
    assert (again["regions"], again["partitions"]) == (regions, made["partitions"])


def with_properties(**properties: str) -> dict[str, Any]:
    return {"properties": {"primaryKey": "id"} | properties}


def partitioned(name: str, *columns: str) -> dict[str, Any]:
    return {"partitions": [{"name": name, "columns": columns, "numbers": []}]}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"name": "a/b"}, "letters, digits, dots"),
    ({"name": "../b"}, "letters, digits, dots"),
    ({"name": "a'b"}, "letters, digits, dots"),
    ({"name": "t$history"}, "letters, digits, dots"),
    ({"name": ""}, "letters, digits, dots"),
    ({"properties": {}}, r"t needs a primary key.*'primaryKey' = 'id'.*PRIMARY KEY \(id\)"),
    ({"properties": {"primaryKey": "id,"}}, "names separated by commas"),
    ({"properties": {"primaryKey": "nothing"}}, "'nothing' is not in the schema"),
    (with_properties(primarKey="id"), "no property 'primarKey': did you mean 'primaryKey'"),
    (with_properties(ttl="7 days"), "no property 'ttl'"),
    (with_properties(provider="orc"), "USING orc: this catalog has tables of memwal only"),
    (with_properties(location="/elsewhere"), "leave LOCATION"),
    (with_properties(external="true"), "leave LOCATION"),
    (with_properties(regions="bucket(id)"), "regions='bucket.id.'"),
    (with_properties(regions="bucket(name, 4)"), "'name'"),
    (
        with_properties(regions="bucket(id, 4)") | partitioned("identity", "id"),
        "two regionss?, 'bucket.id, 4.' and 'identity.id.'",
    ),
    (partitioned("months", "id"), "counts from 1970.*month.id."),
    (partitioned("cluster_by", "id"), "unknown function 'cluster_by'"),
    ({"constraints": [{"text": "CHECK (id > 0)"}]}, "CHECK .id > 0.: a table checks no constraint"),
    (
        {"constraints": [{"text": "", "primaryKey": ["name"]}]},
        "two primary keys, .'id',. and .'name',.",
    ),
    ({"columns": StructType().add("id", LongType()).add("v", VarcharType(3))}, "STRING"),
    (
        {"columns": StructType().add("id", LongType()).add("v", YearMonthIntervalType())},
        "can't hold the columns .'v': 'interval year to month'",
    ),
    ({"defaults": {"name": "x", "id": "1"}}, "'id' of the primary key can't have a default"),
]


@each("request_, words", REFUSED)
def test_what_a_table_can_not_be_is_refused_before_it_is_made(
    tmp_path: Path, request_: dict[str, Any], words: str
) -> None:
    with pytest.raises(mw.MemWalError, match=words):
        create(tmp_path, **({"name": "t"} | request_))
    assert ask(tmp_path, "list_tables") == {"names": []}


def test_a_table_is_replaced_by_one_like_it_alone(tmp_path: Path) -> None:
    create(tmp_path, "t", partitions=[{"name": "bucket", "columns": ["id"], "numbers": ["8"]}])
    table = mw.open_table(tmp_path / "t.lance")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "name": ["a"]}))
    same = create(tmp_path, "t", mode="createOrReplace", properties={}, empty=False)
    assert (same["replaces"], table.count_rows()) == (True, 1)  # the writer replaces the rows
    for request, differs in (
        ({"columns": StructType().add("id", LongType())}, "other columns:"),
        (with_properties(regions="bucket(id, 2)"), "other regions:"),
        ({"properties": {"primaryKey": "id, name"}}, "other primary key:"),
    ):
        with pytest.raises(mw.UnsupportedError, match=differs):
            create(tmp_path, "t", mode="replace", **request)
    required = StructType().add("id", LongType()).add("name", StringType(), False)
    for request, differs in (
        ({"defaults": {"name": "x"}}, "other defaults:"),
        ({"columns": required}, "other NOT NULL and comments of columns:"),
        (with_properties(comment="all"), "other comment:"),
    ):
        with pytest.raises(mw.UnsupportedError, match=differs):
            create(tmp_path, "t", mode="replace", **request)
    with pytest.raises(mw.UnsupportedError, match="other comment:"):
        create(tmp_path, "t", mode="replace", empty=False, **with_properties(comment="all"))
    assert table.count_rows() == 1
    assert create(tmp_path, "t", mode="replace")["replaces"] is True
    assert table.count_rows() == 0


def test_a_table_is_abandoned_only_as_it_was_made(tmp_path: Path) -> None:
    made = create(tmp_path, "t")["incarnation"]
    ask(tmp_path, "drop_table", "t")
    again = create(tmp_path, "t")["incarnation"]
    with pytest.raises(mw.ConflictError, match="stays: others have made it again"):
        ask(tmp_path, "abandon_table", "t", incarnation=made)
    assert ask(tmp_path, "abandon_table", "t", incarnation=again) == {"found": True}
    assert ask(tmp_path, "abandon_table", "t", incarnation=again) == {"found": False}
    written = create(tmp_path, "t")["incarnation"]
    table = mw.open_table(tmp_path / "t.lance")
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "name": ["a"]}))
    with pytest.raises(mw.ConflictError, match=r"stays, although .* DROP TABLE"):
        ask(tmp_path, "abandon_table", "t", incarnation=written)
    assert table.count_rows() == 1


def test_columns_change_together_or_not_at_all(tmp_path: Path) -> None:
    create(tmp_path, "t")
    alter(tmp_path, "t", new("n", IntegerType()), new("d", DoubleType()))
    alter(tmp_path, "t", typed("n", LongType()))
    alter(tmp_path, "t", {"kind": "rename", "column": ["d"], "new": "e"})
    alter(tmp_path, "t", {"kind": "default", "column": ["n"], "default": "5"})
    alter(tmp_path, "t", {"kind": "nullable", "column": ["name"], "nullable": True})
    table = mw.open_table(tmp_path / "t.lance")
    assert [(f.name, str(f.type)) for f in table.schema] == [
        ("id", "int64"),
        ("name", "string"),
        ("n", "int64"),
        ("e", "double"),
    ]
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1]}))
    assert table.get(1).to_pylist() == [{"id": 1, "name": None, "n": 5, "e": None}]
    drop = {"kind": "drop", "column": ["e"], "ifExists": False}
    for change, words in (
        (typed("name", LongType()), "'name' is string, and can't become int64"),
        (typed("id", LongType()), "part of the primary key"),
        ({"kind": "drop", "column": ["x"], "ifExists": False}, "no column 'x'"),
        ({"kind": "rename", "column": ["n"], "new": "name"}, "must be unique"),
        ({"kind": "nullable", "column": ["n"], "nullable": False}, "can't be made required"),
        ({"kind": "default", "column": ["n"], "default": "x"}, "the default .* is not"),
        ({"kind": "comment", "column": ["n"]}, "comment can't be changed"),
        ({"kind": "position", "column": ["n"]}, "stay in their order"),
        ({"kind": "property"}, "no properties that can change"),
        ({"kind": "constraint"}, "checks no constraint"),
        ({"kind": "cluster"}, "regions of a table stay"),
        (new("m", IntegerType(), False), "leave NOT NULL out"),
        (new("m", IntegerType(), default="1"), "leave DEFAULT out"),
        (new("m", IntegerType(), position="FIRST"), "stay in their order"),
        ({**new("m", IntegerType()), "column": ["s", "m"]}, "s.m: a field of a struct"),
        (new("n", IntegerType()), "must be unique"),
    ):
        with pytest.raises(mw.MemWalError, match=words):
            alter(tmp_path, "t", drop, change)
    table.refresh()
    assert table.schema.names == ["id", "name", "n", "e"]
    gone = {"kind": "drop", "column": ["x"], "ifExists": True}
    alter(tmp_path, "t", drop, gone, {"kind": "default", "column": ["n"], "default": None})
    table.refresh()
    assert table.schema.names == ["id", "name", "n"]
    assert alter(tmp_path, "none", drop) == {"found": False}


def test_the_past_and_metadata_of_a_table_are_found_by_their_names(tmp_path: Path) -> None:
    create(tmp_path, "t")
    version = mw.open_table(tmp_path / "t.lance").snapshot_regions()
    alter(tmp_path, "t", new("n", IntegerType()))
    past = ask(tmp_path, "load_table", "t", version=str(version))
    assert past["moment"] == {"version": str(version)}
    assert len(json.loads(past["columns"])["fields"]) == 2
    history = ask(tmp_path, "load_table", "t$history")
    assert (history["metadata"], history["path"]) == ("history", f"{tmp_path}/t.lance")
    for name in ("t$facts", "none$history", "none", "../t", "a/b", "t'"):
        assert ask(tmp_path, "load_table", name) == {"found": False}
    for name, moment, words in (
        ("t", {"version": "99"}, "has no version 99"),
        ("t", {"version": "monday"}, "has no tag 'monday'"),
        ("t", {"micros": 1 << 60}, "years 1 to 9999"),
        ("t", {"micros": 0}, "timestamp='1970-01-01"),
        ("t$history", {"version": "1"}, "it has no AS OF"),
    ):
        with pytest.raises(mw.MemWalError, match=words):
            ask(tmp_path, "load_table", name, **moment)


def test_a_plain_lance_table_is_listed_and_not_read_or_dropped(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1]}), tmp_path / "plain.lance")
    assert ask(tmp_path, "list_tables") == {"names": ["plain"]}
    for operation in ("load_table", "drop_table"):
        with pytest.raises(mw.UnsupportedError, match="is a plain Lance table"):
            ask(tmp_path, operation, "plain")
    with pytest.raises(mw.UnsupportedError, match="is a plain Lance table"):
        create(tmp_path, "plain")
    for root in ("memory://x", "s3://bucket"):
        with pytest.raises(mw.InvalidCallError, match="can't be a catalog"):
            ask(root, "list_tables")
