"""Tables that can't be made, enabled or opened: each is an `InvalidCallError` that names the value
and the remedy, and nothing is written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import InvalidCallError
from planner.regions.field import RegionField
from tests.each import each
from tests.interop.native import create_native
from tests.model.small_rows import SCHEMA, make_rows, refused

INT64 = pa.int64()


def with_column(name: str, type_: pa.DataType = INT64, **how: Any) -> pa.Schema:
    return pa.schema([pa.field("id", INT64), pa.field(name, type_, **how)])


RESERVED = (
    "_tombstone",
    "_rowaddr",
    "_rowoffset",
    "_row_created_at_version",
    "_row_last_updated_at_version",
    "__wal_row_id",
    "__wal_",
)
# Types that Lance can't store.
TYPES = (
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
)
NOT_STORED = ("column 'odd' of type", "can't be stored")
# No scan gives the bytes of a blob.
BLOBS = with_column("odd", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
# Rows of more than 16 MiB, null or not.
WIDE = (
    pa.list_(pa.float32(), 4_194_305),
    pa.list_(pa.float32(), 999_999_999),
    pa.list_(pa.list_(pa.float64(), 2_000), 2_000),
    pa.binary(2**25),
    pa.binary(2**31 - 1),
    pa.struct([("v", pa.list_(pa.int8(), 2**25))]),
    pa.list_(pa.list_(pa.int8(), 2**25)),
    pa.list_(pa.bool_(), 2**25),
    pa.fixed_shape_tensor(pa.float32(), (3_000, 3_000)),
)
KEYS: list[tuple[Any, tuple[str, ...]]] = [
    ([], ("primary key",)),
    ("nope", ("nope", "id")),
    (["id", "id"], ("twice",)),
    ("must", ("must", "double")),
    (5, ("primary_key=5", "name")),
    ([5], ("primary_key=[5]", "name")),
]
SCHEMAS: list[tuple[pa.Schema, Any, tuple[str, ...]]] = [
    *((SCHEMA, key, words) for key, words in KEYS),
    (pa.schema({"id": pa.list_(pa.int64())}), "id", ("'id'", "list")),
    (pa.schema({'k"b': pa.int64()}), 'k"b', ("rename the key columns",)),
    (with_column("id"), "id", ("id",)),
    *((with_column(name), "id", (name, "reserved")) for name in RESERVED),
    *((with_column(name), "id", ("rename",)) for name in ("", "a`b", "a.b")),
    # Arrow and Lance cut a name off at NUL, and two columns may become one.
    (pa.schema({"i\0d": pa.int64()}), "i\0d", ("NUL",)),
    (with_column("v\0"), "id", ("NUL",)),
    # Who suggests a similar name compares each letter of both.
    (with_column("v" * 1025), "id", ("1,025 characters", "1,024 are the most", "shorten")),
    (with_column("s", pa.struct([("a" * 2000, pa.int8())])), "id", ("shorten",)),
    (with_column("s", pa.struct([("\0a", pa.int8())])), "id", ("NUL",)),
    (with_column("s", pa.list_(pa.struct([("a\0b", pa.int8())]))), "id", ("NUL",)),
    *((with_column("odd", type_), "id", NOT_STORED) for type_ in TYPES),
    *((with_column("odd", type_), "id", ("'odd'", "16,777,216 are the most")) for type_ in WIDE),
    (
        pa.schema([("id", INT64), *((f"v{i}", pa.binary(2**21)) for i in range(9))]),
        "id",
        ("16,777,216",),
    ),
    (BLOBS, "id", (*NOT_STORED, "use large_binary")),
    (pa.schema({"id": pa.int64()}, {b"of": b"\xff"}), "id", ("UTF-8",)),
    (pa.schema({"id": pa.int64()}, {b"\xff": b"of"}), "id", ("UTF-8",)),
]


@each("schema, key, words", SCHEMAS)
def test_a_schema_that_can_not_be_stored_is_refused(
    uri: str, schema: pa.Schema, key: Any, words: tuple[str, ...]
) -> None:
    with refused(uri, *words):
        mw.create_table(uri, schema, primary_key=key)


@each(
    "rows, key, words",
    [
        *((make_rows(1), key, words) for key, words in KEYS),
        (make_rows(1), None, ("primary_key",)),
        (make_rows(3, 41, 5, 41), "id", ("41", "more than once")),
        (pa.table({"id": [1, None], "v": [1, 2]}), "id", ("null", "'id'")),
        (pa.table({"id": [1], "odd": [b"x"]}, BLOBS), "id", (*NOT_STORED, "use large_binary")),
    ],
)
def test_rows_that_can_not_be_a_table_are_not_enabled(
    uri: str, rows: pa.Table, key: Any, words: tuple[str, ...]
) -> None:
    lance.write_dataset(rows, uri)
    with refused(uri, *words):
        mw.enable(uri, primary_key=key)
    with refused(uri, uri, "enable"):
        mw.open_table(uri)


# The others are in tests/planner/regions/test_spec.py and test_expression.py.
@each(
    "field, words",
    [
        (mw.bucket("text", 4), ("text", "primary key")),
        (mw.expression("col0 + CAST(random() * 1000000000 AS BIGINT)", "id"), ("random",)),
    ],
)
def test_bad_region_specs_are_refused(uri: str, field: RegionField, words: tuple[str, ...]) -> None:
    """Protocol rules 10 and 12."""
    with refused(uri, *words):
        mw.create_table(uri, SCHEMA, primary_key="id", regions=[field])


@each(
    "place, message",
    [
        *((place, "must be a path or a URI") for place in (5, None, b"table", ["table"])),
        *((place, "names no") for place in ("", "memory://", "file://", "s3://", "file:abs")),
        *(
            (f"{scheme}FOLDER/new{odd}line", "no control characters")
            for scheme in ("", "file://", "memory://")
            for odd in ("\n", "\t", "\x7f", "\udce9")
        ),
        ("file://FOLDER/new%0Aline", "no control characters"),
        # They name another place than they show.
        ("file:///FOLDER/a#b", "has a ? or #"),
        ("file:FOLDER/a#b", "has a ? or #"),
        ("file:///FOLDER/a?b", "has a ? or #"),
        ("memory://a?b", "has a ? or #"),
        ("s3://bucket/a#1/t", "has a ? or #"),
        # Lance leaves a folder without a name out, and the store of our own files would not.
        ("memory://host//t", "write one / instead of //"),
        ("s3://bucket/a//t", "write one / instead of //"),
        # Lance took names that are no host's for folders, and wrote into the working folder.
        *(
            (f"memory://{name}/t", repr(f"memory://{name}/t"))
            for name in ("a b", "a:b", "a|b", "a\\b", "a[b", "a<b")
        ),
    ],
)
def test_a_place_that_can_not_be_meant_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(place, str):
        place = place.replace("FOLDER", str(tmp_path))
    for call in (
        lambda: mw.open_table(place),
        lambda: mw.create_table(place, SCHEMA, "id"),
        lambda: mw.enable(place, "id"),
    ):
        with pytest.raises(InvalidCallError, match=re.escape(message)):
            call()
    assert not list(tmp_path.iterdir())


def test_a_path_may_have_what_a_uri_escapes(tmp_path: Path) -> None:
    path = tmp_path / "a#b?c"
    mw.create_table(path, SCHEMA, "id")
    assert mw.open_table(path).uri == str(path)
    assert mw.open_table(f"file://{tmp_path}/a%23b%3Fc").uri == str(path)


def test_both_schemes_of_memory_are_one_place() -> None:
    table = mw.create_table("shared-memory://both-schemes/t", SCHEMA, "id")
    with table.writer(durable=False) as writer:
        writer.upsert(make_rows(1))
        assert mw.open_table("memory://both-schemes/t/").get([1]).num_rows == 1


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


def test_a_table_is_made_once(table: Any, uri: str) -> None:
    with refused(uri, uri, "open_table"):
        mw.create_table(uri, SCHEMA, primary_key="id")
    with refused(uri, uri, "open_table"):
        mw.enable(uri, primary_key="id")


def test_a_table_of_the_legacy_format_is_enabled_once_it_is_rewritten(tmp_path: Path) -> None:
    """Lance writes no files of that format with given field ids: no flush would succeed."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    rows = pa.concat_tables(make_rows(key) for key in range(5))
    lance.write_dataset(rows, old, data_storage_version="legacy")
    with refused(old, "legacy", "data_storage_version"):
        mw.enable(old, primary_key="id")
    lance.write_dataset(lance.dataset(old), new, data_storage_version="stable")
    assert mw.enable(new, primary_key="id").scan().read_all().num_rows == 5


def test_a_table_of_wider_rows_than_readers_have_room_for_is_not_opened(uri: str) -> None:
    """A few bytes of a manifest would keep a read busy for minutes."""
    rows = with_column("odd", WIDE[1]).empty_table()
    create_native(uri, rows, ["id"], unsharded=True)
    with pytest.raises(mw.UnsupportedError, match=r"'odd' of type.*16,777,216 are the most"):
        mw.open_table(uri)
    wide = pa.field("odd", pa.list_(pa.float32(), 4_000_000))
    table = mw.create_table(f"{uri}-2", make_rows().schema.append(wide), "id")
    with pytest.raises(mw.UnsupportedError, match="16,777,216 are the most"):
        table.add_columns(wide.with_name("other"))
    lance.dataset(table.uri).add_columns(wide.with_name("other"))
    with pytest.raises(mw.UnsupportedError, match="16,777,216 are the most"):
        table.count_rows()
