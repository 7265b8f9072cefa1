"""Calls that can't be done, through the public surface (issue "Bad input and faults").

Each is a typed error that names the value and the remedy, and leaves the table as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import datafusion
import lance
import pandas as pd
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import (
    InvalidCallError,
)
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


@pytest.mark.parametrize(
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


# Tables


BAD_KEYS = {
    "none": ([], ("primary key",)),
    "unknown": ("nope", ("nope", "id")),
    "twice": (["id", "id"], ("twice",)),
    "float": ("must", ("must", "double")),
    "a number": (5, ("primary_key=5", "name")),
    "numbers": ([5], ("primary_key=[5]", "name")),
}


@each("case", BAD_KEYS)
def test_a_table_needs_a_usable_primary_key(uri: str, case: str) -> None:
    key, words = BAD_KEYS[case]
    with refused(uri, *words):
        mw.create_table(uri, SCHEMA, primary_key=key)
    lance.write_dataset(make_rows(1), uri)
    with refused(uri, *words):
        mw.enable(uri, primary_key=key)


def test_a_nested_primary_key_is_refused(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.list_(pa.int64()))])
    with refused(uri, "'id'", "list"):
        mw.create_table(uri, schema, primary_key="id")


def test_enable_without_a_primary_key_says_how_to_give_one(uri: str) -> None:
    lance.write_dataset(make_rows(1), uri)
    with refused(uri, "primary_key"):
        mw.enable(uri)


@each(
    "kind",
    [
        pa.list_(pa.string(), 2),
        pa.list_(pa.struct([("x", pa.int64())]), 2),
        pa.list_(pa.list_(pa.binary(), 2), 2),
        pa.struct([]),
        pa.list_(pa.struct([])),
        pa.list_view(pa.int32()),
        pa.decimal32(5, 2),
        pa.struct([("x", pa.decimal64(5, 2))]),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.list_(pa.float32(), 0),
        pa.struct([("x", pa.uuid())]),
        pa.list_(pa.json_()),
    ],
)
def test_types_that_lance_cannot_store_are_refused(uri: str, kind: pa.DataType) -> None:
    schema = pa.schema({"id": pa.int64(), "odd": kind})
    with pytest.raises(mw.InvalidCallError, match=r"column 'odd' of type .* can't be stored"):
        mw.create_table(uri, schema, "id")


def test_blobs_are_refused_as_no_scan_gives_their_bytes(uri: str) -> None:
    mark = {"lance-encoding:blob": "true"}
    blob = pa.field("odd", pa.large_binary(), metadata=mark)
    schema = pa.schema([pa.field("id", pa.int64()), blob])
    message = r"column 'odd' of type .* can't be stored: .* use large_binary"
    with pytest.raises(mw.InvalidCallError, match=message):
        mw.create_table(uri, schema, "id")
    lance.write_dataset(pa.table({"id": [1], "odd": [b"x"]}, schema), uri)
    with pytest.raises(mw.InvalidCallError, match=message):
        mw.enable(uri, primary_key="id")


@each("metadata", [{b"of": b"\xff"}, {b"\xff": b"of"}])
def test_metadata_that_is_no_text_is_refused(uri: str, metadata: dict[bytes, bytes]) -> None:
    with pytest.raises(mw.InvalidCallError, match="UTF-8"):
        mw.create_table(uri, pa.schema({"id": pa.int64()}, metadata), "id")


def test_a_quote_in_the_name_of_a_key_is_refused(uri: str) -> None:
    with pytest.raises(mw.InvalidCallError, match="rename the key columns"):
        mw.create_table(uri, pa.schema({'k"b': pa.int64()}), 'k"b')


def test_reserved_and_repeated_column_names_are_refused(uri: str) -> None:
    for name in (
        "_tombstone",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "__wal_row_id",
        "__wal_",
    ):
        schema = pa.schema([pa.field("id", pa.int64()), pa.field(name, pa.bool_())])
        with refused(uri, name, "reserved"):
            mw.create_table(uri, schema, primary_key="id")
    twice = pa.schema([pa.field("id", pa.int64()), pa.field("id", pa.int64())])
    with refused(uri, "id"):
        mw.create_table(uri, twice, primary_key="id")


def test_a_uri_that_is_no_table_is_refused(tmp_path: Path, uri: str) -> None:
    with refused(uri, uri, "create_table"):
        mw.open_table(uri)
    with refused(uri, uri, "create_table"):
        mw.enable(uri, primary_key="id")
    assert not Path(uri).exists()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "note.txt").write_text("not a table")
    with refused(str(folder), str(folder)):
        mw.open_table(folder)
    file = tmp_path / "file"
    file.write_text("not a table")
    # One call each: Lance asks for two seconds and more.
    with pytest.raises(InvalidCallError, match=re.escape(f"{file} is a file, and a table")):
        mw.open_table(file)
    with pytest.raises(InvalidCallError, match=re.escape(f"{file / 'below'} is a file, and a tab")):
        mw.create_table(file / "below", SCHEMA, "id")


def test_a_table_of_the_legacy_format_is_enabled_once_it_is_rewritten(tmp_path: Path) -> None:
    """Lance writes no files of that format with given field ids: no flush would succeed."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    rows = pa.concat_tables(make_rows(key) for key in range(5))
    lance.write_dataset(rows, old, data_storage_version="legacy")
    with refused(old, "legacy", "data_storage_version"):
        mw.enable(old, primary_key="id")
    lance.write_dataset(lance.dataset(old), new, data_storage_version="stable")
    assert mw.enable(new, primary_key="id").scan().read_all().num_rows == 5


def test_a_lance_table_without_a_memwal_index_says_how_to_get_one(uri: str) -> None:
    lance.write_dataset(make_rows(1), uri)
    with refused(uri, uri, "enable"):
        mw.open_table(uri)


def test_a_table_is_made_once(table: Any, uri: str) -> None:
    with refused(uri, uri, "open_table"):
        mw.create_table(uri, SCHEMA, primary_key="id")
    with refused(uri, uri, "open_table"):
        mw.enable(uri, primary_key="id")


def test_enable_refuses_duplicate_keys_and_says_which(uri: str) -> None:
    lance.write_dataset(make_rows(3, 41, 5, 41), uri)
    with refused(uri, "41", "more than once"):
        mw.enable(uri, primary_key="id")
    with pytest.raises(InvalidCallError):
        mw.open_table(uri)


def test_enable_refuses_null_keys(uri: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64())])
    lance.write_dataset(pa.table({"id": [1, None], "v": [1, 2]}, schema=schema), uri)
    with refused(uri, "null", "'id'"):
        mw.enable(uri, primary_key="id")


# The others are in tests/planner/regions/test_spec.py and test_expression.py.
BAD_REGIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "not of the key": (lambda: [mw.bucket("text", 4)], ("text", "primary key")),
    "a random expression": (
        lambda: [mw.expression("col0 + CAST(random() * 1000000000 AS BIGINT)", "id")],
        ("random",),
    ),
    "a list of columns": (lambda: [mw.expression("col0", ["id"])], ("['id']", "text")),  # type: ignore[arg-type]
}


@each("case", BAD_REGIONS)
def test_bad_region_specs_are_refused(uri: str, case: str) -> None:
    """Protocol rules 10 and 12."""
    make, words = BAD_REGIONS[case]
    with refused(uri, *words):
        mw.create_table(uri, SCHEMA, primary_key="id", regions=make())


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


@each("no_uri", [5, None, b"table", ["table"]])
def test_what_is_no_uri_is_refused(no_uri: Any) -> None:
    for call in (
        lambda: mw.open_table(no_uri),
        lambda: mw.create_table(no_uri, SCHEMA, "id"),
        lambda: mw.enable(no_uri, "id"),
    ):
        with pytest.raises(InvalidCallError, match="must be a path or a URI"):
            call()


@each("scheme", ["", "file://", "memory://"])
@each("odd", ["\n", "\t", "\x7f", "\udce9"])
def test_a_path_that_lance_cannot_parse_is_refused(tmp_path: Path, scheme: str, odd: str) -> None:
    place = f"{scheme}{tmp_path}/new{odd}line"
    for call in (mw.open_table, lambda uri: mw.create_table(uri, SCHEMA, "id")):
        with pytest.raises(InvalidCallError, match="no control characters"):
            call(place)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a b", "a:b", "a|b", "a\\b", "a[b", "a<b"])
def test_a_table_in_memory_has_the_name_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Lance took others for folders, and wrote into the working folder."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidCallError, match=re.escape(repr(f"memory://{name}/t"))):
        mw.create_table(f"memory://{name}/t", SCHEMA, "id")
    assert not list(tmp_path.iterdir())


def test_a_character_that_is_escaped_is_one_too(tmp_path: Path) -> None:
    with pytest.raises(InvalidCallError, match="no control characters"):
        mw.create_table(f"file://{tmp_path}/new%0Aline", SCHEMA, "id")


@each("place", ["file:///{}/a#b", "file:///{}/a?b", "memory://a?b", "s3://bucket/a#1/t"])
def test_a_uri_that_names_another_place_than_it_shows_is_refused(
    tmp_path: Path, place: str
) -> None:
    with pytest.raises(InvalidCallError, match=r"has a \? or #"):
        mw.create_table(place.format(tmp_path), SCHEMA, "id")
    path = tmp_path / "a#b?c"
    mw.create_table(path, SCHEMA, "id")
    assert mw.open_table(path).uri == str(path)
    assert mw.open_table(f"file://{tmp_path}/a%23b%3Fc").uri == str(path)


@each("place", ["memory://host//t", "s3://bucket/a//t"])
def test_a_folder_without_a_name_is_refused(place: str) -> None:
    """Lance leaves it out, and the store of our own files would not."""
    with pytest.raises(InvalidCallError, match="write one / instead of //"):
        mw.create_table(place, SCHEMA, "id")


def test_both_schemes_of_memory_are_one_place() -> None:
    table = mw.create_table("shared-memory://both-schemes/t", SCHEMA, "id")
    with table.writer(durable=False) as writer:
        writer.upsert(make_rows(1))
        assert mw.open_table("memory://both-schemes/t/").get([1]).num_rows == 1


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
        mw.run_jobs(table, mw.Triggers(**triggers), **options)


@each("names", [5, "id_idx"])
def test_a_job_for_some_things_needs_a_list_of_their_names(
    table: Any, uri: str, names: Any
) -> None:
    with refused(uri, f"regions={names!r}", "list"):
        table.merge(regions=names)
    with refused(uri, f"indexes={names!r}", "list"):
        table.build_indexes(indexes=names)


@pytest.mark.parametrize(
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
    ids=repr,
)
def test_garbage_is_collected_by_options_of_their_types_alone(
    table: Any, uri: str, given: dict[str, Any]
) -> None:
    ((name, value),) = given.items()
    with refused(uri, f"{name}={value!r}", "must be"):
        table.collect_garbage(**given)
