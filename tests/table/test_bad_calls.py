"""Calls that can't be done, through the public surface (issue "Bad input and faults").

Each is a typed error that names the value and the remedy, and leaves the table as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import datafusion
import pandas as pd
import pyarrow as pa

import memwal_sql as mw
from tests.each import each
from tests.model.small_rows import SCHEMA, make_rows, refused, texts_of

# Rows


# The others are those of `Normaliser`, in tests/write/ingest.
BAD_UPSERTS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "wrong type": (
        lambda: make_rows(5).set_column(0, "id", pa.array(["five"])),
        ("'id'", "int64", "string"),
    ),
    "a null in a required column": (
        lambda: make_rows(5, 6).set_column(3, "must", pa.array([1.0, None])),
        ("'must'", "row 1", "null"),
    ),
    "batches of other columns": (
        lambda: [make_rows(5), make_rows(6).drop_columns(["text"])],
        ("batch 1", "['id', 'small', 'must']"),
    ),
    # Arrow and Lance would cut the name off there.
    "a name with NUL": (
        lambda: {**make_rows(5).to_pydict(), "id\0": [1]},
        ("no column", "x00"),
    ),
    "no rows at all": (lambda: 17, ("int", "table")),
    "a frame with a column twice": (
        lambda: pd.DataFrame([[1, 2]], columns=["id", "id"]),
        ("DataFrame", "'id'"),
    ),
}


@each("case", BAD_UPSERTS)
@each("durable", [True, False])
def test_bad_rows_are_refused_whole(table: Any, uri: str, case: str, durable: bool) -> None:
    make, words = BAD_UPSERTS[case]
    with table.writer(durable=durable) as writer:
        writer.upsert(make_rows(1, 2, text="before"))
        writer.flush()
        with refused(uri, *words):
            writer.upsert(make())
        assert texts_of(table) == {0: "x", 1: "before", 2: "before"}
        writer.upsert(make_rows(2, text="after"))  # the writer goes on
        assert texts_of(table) == {0: "x", 1: "before", 2: "after"}


@each(
    "keys, words",
    [
        (pa.table({"other": [1]}), ("id", "other")),
        (pa.table({"id": pa.array([None], pa.int64())}), ("id", "null")),
        (pa.table({"id": ["one"]}), ("id", "string")),
        (["one"], ("'one'", "id", "int64")),
        ([(1, 2)], ("(1, 2)",)),
        ([None], ("null", "id")),
        ([1.5], ("1.5", "id")),
        ([2**70], (str(2**70), "id")),
        ({"id": 1}, ("'id'", "1", "list")),
        (True, ("True", "id")),
        ([{"other": 1}], ("{'other': 1}", "['id']")),
        ([{"id": 1}, {"id": None}], ("'id'", "null")),
        ([pa.table({"id": [1]}), pa.table({"id": ["one"]})], ("batch 1", "string", "int64")),
    ],
)
def test_bad_keys_are_refused_by_delete_and_get(
    table: Any, uri: str, keys: Any, words: tuple[str, ...]
) -> None:
    with table.writer() as writer:
        writer.upsert(make_rows(7))
        writer.flush()
        with refused(uri, *words):
            writer.delete(keys)
        with refused(uri, *words):
            table.get(keys)
        assert 7 in texts_of(table)


def test_a_composite_key_of_the_wrong_length_is_refused(uri: str) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    table = mw.create_table(uri, schema, primary_key=["a", "b"])
    for keys in ([1], [(1,)], [(1, "x", 2)]):
        with refused(uri, repr(keys[0]), "'a'", "'b'"):
            table.get(keys)


@each(
    "empty",
    [
        SCHEMA.empty_table,
        list,
        dict,
        lambda: {"id": [], "small": [], "text": [], "must": []},
    ],
)
def test_empty_batches_do_nothing(table: Any, uri: str, empty: Callable[[], Any]) -> None:
    with table.writer() as writer:
        result = writer.upsert(empty())
        assert result.rows == 0
        assert writer.delete([]).rows == 0
        writer.flush()
        assert texts_of(table) == {0: "x", 1: "x", 2: "x"}
    assert table.get([]).num_rows == 0


# Reads, writers and jobs


def test_bad_questions_are_refused(table: Any, uri: str) -> None:
    with refused(uri, "nope", "strong"):
        table.scan(consistency="nope")
    with refused(uri, "nope"):
        mw.register(datafusion.SessionContext(), "t", table, consistency="nope")
    with refused(uri, "nope", "text"):
        table.scan(columns=["nope"])
    with refused(uri, "nope", "text"):
        table.get([1], columns=["nope"])
    for limit in (-1, 2**63, 1.5, True):
        with refused(uri, repr(limit)):
            table.scan(limit=limit)
    with refused(uri, "columns=5"):
        table.scan(columns=5)
    with refused(uri, "nope"):
        table.scan(filter="nope > 1").read_all()
    with refused(uri, "id >"):
        table.scan(filter="id > > 1").read_all()
    for run in (mw.run_all_jobs, mw.run_jobs_forever):
        with refused(uri, uri, "mw.open_table"):
            run(uri)


@each(
    "condition",
    [
        "count(*) > 1",
        "row_number() OVER () > 1",
        "id = $1",
        "id = 'one'",
        "1 / 0 = id",
        "text LIKE 5",
        5,
    ],
)
def test_conditions_that_are_not_of_one_row_are_refused(
    table: Any, uri: str, condition: Any
) -> None:
    with refused(uri, f"filter={condition!r}"):
        table.scan(filter=condition).read_all()


COUNTS = (
    "wal_flush_bytes",
    "wal_flush_writes",
    "memtable_rows",
    "memtable_bytes",
    "max_unflushed_bytes",
    "parallel_flushes",
    "flush_attempts",
)


@each("region", [5, b"a", True])
def test_a_region_without_a_name_is_refused(uri: str, region: Any) -> None:
    table = mw.create_table(uri, SCHEMA, "id", regions=mw.manual())
    with refused(uri, f"region={region!r}", "name"):
        table.writer(region=region)


@each(
    "options",
    [
        {"durable": "yes"},
        {"memtable_rows": 0},
        {"wal_flush_bytes": -1},
        {"memtable_row": 5},
        {"region": "a"},
        *({name: 1.5} for name in COUNTS),
        *({name: 0} for name in COUNTS),
        *({name: 1 << 31} for name in ("memtable_bytes", "wal_flush_bytes")),
        {"memtable_rows": True},
        {"memtable_rows": float("inf")},
        {"wal_flush_interval_s": float("inf")},
        {"wal_flush_interval_s": float("nan")},
        {"wal_flush_interval_s": None},
        {"memtable_age_s": 1e300},
        {"back_pressure_timeout_s": "1"},
    ],
)
def test_bad_writer_options_are_refused(table: Any, uri: str, options: dict[str, Any]) -> None:
    name = next(iter(options))
    with refused(uri, name):
        table.writer(**options)


@each(
    "triggers, options",
    [
        ({"merge_generations": 1.5}, {}),
        ({"merge_generations": -1}, {}),
        ({"merge_seconds": float("nan")}, {}),
        ({"version_seconds": 1e300}, {}),
        ({"grace_seconds": "1"}, {}),
        ({}, {"interval": float("inf")}),
        ({}, {"interval": -1}),
        ({}, {"rounds": 1.5}),
        ({}, {"rounds": "3"}),
    ],
)
def test_bad_options_of_the_job_loop_are_refused_at_once(
    table: Any, uri: str, triggers: dict[str, Any], options: dict[str, Any]
) -> None:
    with refused(uri, next(iter({**triggers, **options}))):
        mw.run_jobs_forever(table, mw.Triggers(**triggers), **options)


@each("names", [5, "id_idx"])
def test_a_job_for_some_things_needs_a_list_of_their_names(
    table: Any, uri: str, names: Any
) -> None:
    with refused(uri, f"regions={names!r}", "list"):
        table.merge(regions=names)
    with refused(uri, f"indexes={names!r}", "list"):
        table.build_indexes(indexes=names)


@each(
    "given",
    [
        {"dry_run": "no"},
        {"dry_run": 0},
        {"dry_run": None},
        {"older_than": None},
        {"older_than": 3600},
        {"older_than": timedelta(-1)},
        {"versions_older_than": ""},
        {"versions_older_than": timedelta(-1)},
    ],
)
def test_garbage_is_collected_by_options_of_their_types_alone(
    table: Any, uri: str, given: dict[str, Any]
) -> None:
    ((name, value),) = given.items()
    with refused(uri, f"{name}={value!r}", "must be"):
        table.collect_garbage(**given)
