"""Fields inside columns that plain Lance renames, drops and adds: they go by field id as columns
do, wherever their rows are (protocol rule 2)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "s": PAIR,
        "deep": pa.struct([("in", PAIR), ("n", pa.int64())]),
        "many": pa.list_(PAIR),
        "by_name": pa.map_(pa.string(), pa.list_(PAIR)),
    }
)
PATHS = ("s", "deep.in", "many.item", "by_name.entries.value.item")


def _alter(uri: str, path: str, name: str) -> None:
    lance.dataset(uri).alter_columns({"path": path, "name": name})


def _rename(uri: str) -> None:
    for path in PATHS:
        _alter(uri, f"{path}.x", "z")


def _rename_a_struct(uri: str) -> None:
    _alter(uri, "deep.in", "within")
    _alter(uri, "deep.within.y", "w")


def _swap(uri: str) -> None:
    for path in PATHS:
        for old, new in (("x", "t"), ("y", "x"), ("t", "y")):
            _alter(uri, f"{path}.{old}", new)


def _drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["s.x", "deep.in.x", "many.item.x"])


def _drop_and_add(uri: str) -> None:
    lance.dataset(uri).drop_columns(["s.x"])
    lance.dataset(uri).add_columns(pa.field("s", pa.struct([("x", pa.int64())])))


def _replace_all(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.field("s", pa.struct([("q", pa.int64())])))
    lance.dataset(uri).drop_columns(["s.x", "s.y"])


Pair = dict[str, Any]
# What becomes of the pairs in `s`, in `deep`, in `many` and in `by_name`.
CHANGES: dict[str, tuple[Callable[[str], None], Callable[[Pair], Pair], tuple[str, ...]]] = {
    "rename": (_rename, lambda p: {"z": p["x"], "y": p["y"]}, PATHS),
    "swap": (_swap, lambda p: {"y": p["x"], "x": p["y"]}, PATHS),
    "drop": (_drop, lambda p: {"y": p["y"]}, PATHS[:3]),
    "drop and add again": (_drop_and_add, lambda p: {"y": p["y"], "x": None}, PATHS[:1]),
    "replace all": (_replace_all, lambda p: {"q": None}, PATHS[:1]),
    "rename a struct": (_rename_a_struct, lambda p: p, ()),
}


def _row(key: int, change: str | None = None) -> dict[str, Any]:
    """A row as it was written, or as it is after a change."""
    _, of, paths = CHANGES[change] if change else (None, lambda p: p, ())
    pair: Pair | None = {"x": key, "y": f"y{key}"}
    pairs = {path: of(dict(pair)) if path in paths else pair for path in PATHS}
    inner = {"in": pairs["deep.in"]}
    if change == "rename a struct":
        inner = {"within": {"x": key, "w": f"y{key}"}}
    missing = key % 4 == 0  # some of all kinds are null
    return {
        "id": key,
        "s": None if missing else pairs["s"],
        "deep": {**dict.fromkeys(inner), "n": key} if missing else {**inner, "n": key},
        "many": [pairs["many.item"], None] * (key % 3),
        "by_name": None if missing else [("k", [pairs["by_name.entries.value.item"]])],
    }


def _write(writer: Any, keys: range) -> None:
    writer.upsert(pa.Table.from_pylist([_row(key) for key in keys], SCHEMA))


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in table.sort_by("id").to_pylist()]


@pytest.mark.parametrize("durable", [True, False])
# Of structs that lost all their fields, Lance itself forgets in the base which ones are null.
@pytest.mark.parametrize("change", [name for name in CHANGES if name != "replace all"])
def test_rows_follow_their_fields_wherever_they_are(
    tmp_path: Path, change: str, durable: bool
) -> None:
    """In the base, in a generation, in the log, in the memory of a writer that goes on."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    alter = CHANGES[change][0]
    with table.writer(durable=durable) as writer:
        for first in (1, 11, 21):
            _write(writer, range(first, first + 8))
            if first < 21:
                writer.flush()
            if first == 1:
                table.merge()
        _write(writer, range(28, 33))
        before = [_row(key) for key in (*range(1, 9), *range(11, 19), *range(21, 33))]
        assert _sorted(table.scan().read_all()) == before
        alter(table.uri)
        expected = [_row(row["id"], change) for row in before]
        for handle in (table, mw.open_table(table.uri)):
            assert _sorted(handle.scan().read_all()) == expected
            for key in (3, 13, 23, 28):
                assert handle.get([key]).to_pylist() == [_row(key, change)]
    assert _sorted(mw.open_table(table.uri).scan().read_all()) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_merge_keeps_what_fields_hold(tmp_path: Path, change: str) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        for keys in (range(1, 9), range(5, 13)):
            _write(writer, keys)
            writer.flush()
    CHANGES[change][0](table.uri)
    expected = [_row(key, change) for key in range(1, 13)]
    assert _sorted(table.scan(consistency="manifest").read_all()) == expected
    assert table.merge() == 2
    assert _sorted(lance.dataset(table.uri).to_table()) == expected
    assert _sorted(table.scan().read_all()) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_replay_by_another_process_and_the_feed_go_by_id(tmp_path: Path, change: str) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        _write(writer, range(1, 9))
    CHANGES[change][0](table.uri)
    expected = [_row(key, change) for key in range(1, 9)]
    names = list(expected[0])
    assert _sorted(table.changes().read_all().select(names)) == expected
    other = (
        "import sys, memwal_sql as mw\n"
        "with mw.open_table(sys.argv[1]).writer() as writer:\n"
        "    writer.upsert([{'id': 9}], missing='null'); writer.flush()\n"
    )
    subprocess.run([sys.executable, "-c", other, table.uri], check=True)
    assert table.check().ok
    assert _sorted(table.scan().read_all())[:-1] == expected
    table.merge()
    assert _sorted(lance.dataset(table.uri).to_table())[:-1] == expected


@pytest.mark.parametrize("change", CHANGES)
def test_generations_with_the_fields_of_before_are_not_called_damaged(
    tmp_path: Path, change: str
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        _write(writer, range(1, 9))
        writer.flush()
    CHANGES[change][0](table.uri)
    assert {finding.check for finding in table.check().findings} <= {"leftovers"}
