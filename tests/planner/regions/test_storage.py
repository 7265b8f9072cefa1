"""Region specs survive storage, ours as expressions and native's by native's rule."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError, RepairError
from planner.regions import factories as mw
from planner.regions.check import validate
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec
from planner.regions.storage import StoredSpec, from_storage, to_storage
from planner.regions.text import spec_of
from tests.each import each

SCHEMA = pa.schema([("id", pa.int32()), ("s", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
IDS = {"id": 0, "s": 4, "ts": 9}
NAMES = {number: name for name, number in IDS.items()}


@each(
    "fields",
    [
        [mw.identity("id")],
        [mw.year("ts"), mw.month("ts"), mw.day("ts"), mw.hour("ts")],
        [mw.bucket("id", 16)],
        [mw.lance_bucket("id", 16)],
        [mw.multi_bucket(["s", "id"], 7)],
        [mw.truncate("s", 3), mw.truncate("id", 3)],
        [mw.expression("col0 % 3", "id")],
    ],
)
def test_a_spec_comes_back_as_it_was(fields: list[RegionField]) -> None:
    spec = validate(spec_of(fields, 3), SCHEMA, SCHEMA.names)
    stored = to_storage(spec, IDS)
    back = from_storage(stored, NAMES)
    rows = pa.table(
        [pa.array([1, None]), pa.array(["abcd", None]), pa.array([5, None])], schema=SCHEMA
    )
    assert back.evaluate(rows).equals(spec.evaluate(rows))
    assert to_storage(back, IDS) == stored
    assert [f.source_columns for f in back.fields] == [f.source_columns for f in spec.fields]


def test_our_buckets_are_stored_as_expressions() -> None:
    """Protocol rule 12: native code refuses an expression instead of misrouting."""
    spec = validate(
        spec_of([mw.bucket("id", 16), mw.multi_bucket(["id", "s"], 4)], 1), SCHEMA, ["id", "s"]
    )
    assert to_storage(spec, IDS)["fields"] == [
        {
            "field_id": "id_bucket",
            "source_ids": [0],
            "transform": None,
            "expression": "abs(murmur3(col0)) % 16",
            "result_type": "int32",
            "parameters": {},
        },
        {
            "field_id": "id_s_bucket",
            "source_ids": [0, 4],
            "transform": None,
            "expression": "abs(murmur3_multi(col0, col1)) % 4",
            "result_type": "int32",
            "parameters": {},
        },
    ]


def test_lance_s_own_bucket_is_stored_as_native_code_stores_it() -> None:
    stored = to_storage(validate(spec_of(mw.lance_bucket("s", 16), 1), SCHEMA, ["s"]), IDS)
    assert stored["fields"] == [
        {
            "field_id": "s_bucket",
            "source_ids": [4],
            "transform": "bucket",
            "expression": None,
            "result_type": "int32",
            "parameters": {"num_buckets": "16"},
        }
    ]


def test_native_code_refuses_our_bucket() -> None:
    """Protocol rule 12."""
    stored = to_storage(validate(spec_of(mw.bucket("id", 16), 1), SCHEMA, ["id"]), IDS)
    batch = pa.record_batch({"id": pa.array([1])})
    with pytest.raises(Exception, match="Unsupported"):
        lance.evaluate_sharding_spec(
            batch, stored, lance.schema.LanceSchema.from_pyarrow(batch.schema)
        )


@pytest.mark.parametrize(
    "options",
    [
        {"bucket_column": "id", "num_buckets": 8},
        {"bucket_column": "s", "num_buckets": 8},
        {"identity_column": "s"},
        {"unsharded": True},
    ],
)
def test_a_spec_made_by_native_code_is_evaluated_like_there(
    options: dict[str, object], tmp_path: Path
) -> None:
    """Protocol rule 12: tables made by native code are routed by native's rule."""
    key = {"lance-schema:unenforced-primary-key": "true"}
    column = options.get("bucket_column", options.get("identity_column", "id"))
    schema = pa.schema(
        [
            pa.field("x", pa.int64()),
            pa.field(
                "id", pa.int32(), nullable=column != "id", metadata=key if column == "id" else None
            ),
            pa.field(
                "s", pa.string(), nullable=column != "s", metadata=key if column == "s" else None
            ),
        ]
    )
    dataset = lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    dataset.initialize_mem_wal(**options)
    (stored,) = dataset.mem_wal_index_details()["sharding_specs"]
    names = {f.id(): f.name() for f in dataset.lance_schema.fields()}
    spec = from_storage(stored, names)
    batch = pa.record_batch(
        {"x": [1, 2, 3], "id": pa.array([1, -7, 9], pa.int32()), "s": ["a", "", "bcdefg"]}
    )
    expected = lance.evaluate_sharding_spec(batch, stored, dataset.lance_schema)
    ours = spec.evaluate(pa.Table.from_batches([batch]))
    assert ours.to_pydict() == expected.to_pydict()
    assert to_storage(spec, {}) == stored


def test_a_source_column_that_is_gone_reads_as_null() -> None:
    """Protocol rule 12: a removed source column is NULL; its id stays stored."""
    stored = to_storage(validate(spec_of(mw.bucket("id", 16), 1), SCHEMA, ["id"]), IDS)
    spec = from_storage(stored, {})
    assert spec.fields[0].source_columns == (None,)
    assert spec.evaluate(pa.table({"id": [1]})).column(0).to_pylist() == [None]
    assert to_storage(spec, {}) == stored


def test_a_renamed_source_column_is_followed_by_its_id() -> None:
    stored = to_storage(validate(spec_of(mw.bucket("id", 16), 1), SCHEMA, ["id"]), IDS)
    assert from_storage(stored, {0: "key"}).fields[0].source_columns == ("key",)


def test_a_column_without_a_field_id_is_refused() -> None:
    with pytest.raises(InvalidCallError, match="no column 'id'"):
        to_storage(spec_of(mw.bucket("id", 16), 1), {"other": 1})


def test_manual_regions_are_stored_without_fields() -> None:
    """Protocol rule 13: spec 0 is no spec."""
    assert to_storage(mw.manual(), IDS) == {"spec_id": 0, "fields": []}
    assert from_storage({"spec_id": 0, "fields": []}, NAMES) == RegionSpec(0, ())


def test_damaged_specs_are_named() -> None:
    stored: StoredSpec = to_storage(validate(spec_of(mw.identity("id"), 1), SCHEMA, ["id"]), IDS)
    stored["fields"][0]["transform"] = None
    with pytest.raises(RepairError, match="'id'"):
        from_storage(stored, NAMES)
    with pytest.raises(RepairError, match="region spec 0"):
        from_storage(
            {"spec_id": 0, "fields": [to_storage(spec_of(mw.identity("id"), 1), IDS)["fields"][0]]},
            NAMES,
        )
