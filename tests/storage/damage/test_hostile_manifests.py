"""Lance's manifests whose messages are whole and say what no table is: every use is right, or an
error of this package, and `check` names the version or can't open the table.

The messages are made field by field, as ours know only a part of Lance's.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import timedelta
from functools import partial
from io import StringIO
from os import link
from pathlib import Path
from typing import Any

import lance
import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.errors import CorruptFileError
from tests.each import each
from tests.model.lance_manifest import (
    BYTES,
    VARINT,
    Change,
    Fields,
    encoded,
    fields_of,
    rewrite,
    rewrite_indexes,
)
from tests.model.process import as_another_process
from tests.model.small_rows import make_rows, texts_of
from tests.model.writing import flush_rows, upsert_rows
from tests.soak import usual

pytestmark = pytest.mark.slow

WHOLE = {1: "merged", 2: "flushed", 3: "tail"}
FIELD, FRAGMENT, TIMESTAMP, READER_FLAGS = 1, 2, 7, 9
ID, NAME, PARENT, TYPE = 3, 2, 4, 5  # of a field
FILES, ROWS = 2, 4  # of a fragment


def first(number: int, *changed: tuple[int, int, Any]) -> Change:
    """Other values in the first message of a kind; None for none."""

    def change(fields: Fields) -> Fields:
        places = [place for place, field in enumerate(fields) if field[0] == number]
        if not places:  # the first versions have no fragments
            return fields
        place = places[0]
        numbers = {new[0] for new in changed}
        inner = [field for field in fields_of(fields[place][2]) if field[0] not in numbers]
        inner += [new for new in changed if new[2] is not None]
        return [*fields[:place], (number, BYTES, encoded(inner)), *fields[place + 1 :]]

    return change


def again(number: int, *changed: tuple[int, int, Any]) -> Change:
    """The first message of a kind once more, with other values."""

    def change(fields: Fields) -> Fields:
        original = [field for field in fields if field[0] == number]
        return [*original[:1], *first(number, *changed)(fields)]

    return change


def without(number: int) -> Change:
    return lambda fields: [field for field in fields if field[0] != number]


def with_value(number: int, wire: int, value: Any) -> Change:
    return lambda fields: [*without(number)(fields), (number, wire, value)]


MESSAGES: dict[str, Change] = {
    "a field twice": again(FIELD),
    "a name twice": again(FIELD, (ID, VARINT, 77)),
    "a field's id twice": again(FIELD, (NAME, BYTES, b"other")),
    "a field without a name": first(FIELD, (NAME, BYTES, None)),
    "a field below zero": first(FIELD, (ID, VARINT, -5)),
    "a field that is its own parent": first(FIELD, (PARENT, VARINT, 0)),
    "a field below none": first(FIELD, (PARENT, VARINT, 99)),
    "no type": first(FIELD, (TYPE, BYTES, None)),
    "an unknown type": first(FIELD, (TYPE, BYTES, b"junk")),
    "a type beyond Arrow's": first(FIELD, (TYPE, BYTES, b"decimal:128:99:99")),
    "a list of nothing": first(FIELD, (TYPE, BYTES, b"list")),
    "no fields": without(FIELD),
    "a fragment twice": again(FRAGMENT),
    "a fragment beyond row addresses": first(FRAGMENT, (1, VARINT, 2**40)),
    "a fragment without files": first(FRAGMENT, (FILES, BYTES, None)),
    "a fragment without rows": first(FRAGMENT, (ROWS, VARINT, None)),
    "a fragment of noise": with_value(FRAGMENT, BYTES, b"\xff\xff\xff"),
    "a time beyond the calendar": with_value(TIMESTAMP, BYTES, encoded([(1, VARINT, 2**62)])),
    "features of the future": with_value(READER_FLAGS, VARINT, 2**40),
}


def _index(**values: Any) -> Callable[[Any], None]:
    def change(section: Any) -> None:
        for index in section.indices:
            if index.name == "text_idx":
                for name, value in values.items():
                    setattr(index, name, value)

    return change


INDEXES: dict[str, Callable[[Any], None]] = {
    "no bitmap": _index(fragment_bitmap=b""),
    "a bitmap of noise": _index(fragment_bitmap=b"\xff\xff\xff\xff"),
    "a bitmap that is cut": _index(fragment_bitmap=b"\x3a\x30"),
    "no id": _index(uuid=b""),
    "a short id": _index(uuid=b"\n\x03abc"),
    "the name of moved fragments": _index(name="__lance_frag_reuse"),
    "the name of the MemWAL index": _index(name="__lance_mem_wal"),
    "a version below zero": _index(index_version=-1),
    "every index twice": lambda section: section.indices.extend(list(section.indices)),
}
FILES_OF_NOISE: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "a message beyond the file": lambda data: data[:-16] + struct.pack("<Q", 2**62) + data[-8:],
    "a message of noise": lambda data: (
        data[: struct.unpack("<Q", data[-16:-8])[0] + 4] + b"\xff" * 20 + data[-16:]
    ),
}


def _of_noise(file: Path, change: Callable[[bytes], bytes]) -> None:
    data = change(file.read_bytes())
    file.unlink()
    file.write_bytes(data)


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    *((name, partial(rewrite, change=change)) for name, change in MESSAGES.items()),
    *((name, partial(rewrite_indexes, change=change)) for name, change in INDEXES.items()),
    *((name, partial(_of_noise, change=change)) for name, change in FILES_OF_NOISE.items()),
]


def _command(name: str) -> Callable[[Any], object]:
    def call(table: Any) -> None:
        called = CliRunner().invoke(app, [name, table.uri])
        assert called.exit_code != ExitCode.BUG, called.output[-900:]

    return call


FOREVER = timedelta(0)
USES: dict[str, Callable[[Any], object]] = {
    "rows": texts_of,
    "get": lambda table: table.get([1, 2, 3]),
    "search": lambda table: table.full_text_search("text", "merged", 3),
    "changes": lambda table: table.changes().read_all(),
    "history": lambda table: table.history(),
    "overview": lambda table: table.overview(),
    "pin": lambda table: table.pin(),
    "check": lambda table: table.check(),
    "dry run": lambda table: table.collect_garbage(
        dry_run=True, older_than=FOREVER, versions_older_than=FOREVER
    ),
    "info": _command("info"),
    "versions": _command("versions"),
    "tag": lambda table: mw.open_table(table.uri, "tagged").count_rows(),
    "restore": lambda table: table.restore("tagged"),
    "write": lambda table: upsert_rows(table, make_rows(4)),
    "merge": lambda table: table.merge(),
    "index": lambda table: table.create_index("text", "FTS", replace=True),
    "enable": lambda table: mw.enable(table.uri, primary_key="id"),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    uri = tmp_path_factory.mktemp("template") / "t"
    table = mw.create_table(uri, make_rows().schema, "id")
    upsert_rows(table, make_rows(1, text="merged"))
    table.flush()
    table.merge()
    table.create_index("text", "FTS", name="text_idx")
    flush_rows(table, make_rows(2, text="flushed"))
    table.tags.create("tagged", table.snapshot_regions())
    table.build_indexes()
    upsert_rows(table, make_rows(3, text="tail"))
    table.close()
    return uri


@each("older", [False, True])
def test_a_manifest_that_says_what_no_table_is_is_an_error_of_this_package(
    template: Path, tmp_path: Path, older: bool
) -> None:
    raised = []
    with as_another_process():
        for number, (name, damage) in enumerate(usual(DAMAGES, 8 if older else 16)):
            uri = tmp_path / str(number)
            shutil.copytree(template, uri, copy_function=link)
            newest, *before = sorted(uri.glob("_versions/*.manifest"))
            for file in before if older else [newest]:
                damage(file)
            for use, call in USES.items():
                try:
                    with redirect_stdout(StringIO()):
                        answer = call(mw.open_table(uri))
                    if use == "rows":
                        assert answer == WHOLE
                except mw.MemWalError:
                    pass
                except BaseException as error:  # a PanicException is no Exception
                    raised.append(f"{name}: {use}: {type(error).__name__}: {str(error)[:200]}")
            shutil.rmtree(uri)
    assert raised == [], "\n".join(raised)


@each(
    "kind",
    [
        b"fixed_size_list:float:999999999",
        b"fixed_size_binary:2147483647",
        b"fixed_size_list:float:9",
    ],
)
def test_a_generation_has_the_types_of_the_table(
    template: Path, tmp_path: Path, kind: bytes
) -> None:
    """A few bytes of its manifest would take gigabytes, or be an error of Arrow."""
    uri = tmp_path / "t"
    shutil.copytree(template, uri, copy_function=link)

    def change(fields: Fields) -> Fields:
        _, place, *_ = (place for place, part in enumerate(fields) if part[0] == FIELD)
        inner = [part for part in fields_of(fields[place][2]) if part[0] != TYPE]
        field = (FIELD, BYTES, encoded([*inner, (TYPE, BYTES, kind)]))
        return [*fields[:place], field, *fields[place + 1 :]]

    for file in uri.glob("_mem_wal/*/*_gen_*/_versions/*.manifest"):
        rewrite(file, change)
    with as_another_process():
        for call in (texts_of, lambda table: texts_of(table, consistency="eventual")):
            with pytest.raises((mw.RepairError, mw.UnsupportedError), match=r"fixed_size|binary"):
                call(mw.open_table(uri))
        assert not mw.open_table(uri).check().ok


def test_an_index_that_can_not_be_read_is_dropped_by_plain_lance(
    template: Path, tmp_path: Path
) -> None:
    uri = tmp_path / "t"
    shutil.copytree(template, uri, copy_function=link)
    rewrite_indexes(min(uri.glob("_versions/*.manifest")), INDEXES["no bitmap"])
    with as_another_process():
        with pytest.raises(CorruptFileError, match="drop_index"):
            texts_of(mw.open_table(uri))
        assert "drop_index" in str(mw.open_table(uri).check())
        lance.dataset(uri).drop_index("text_idx")
        assert texts_of(mw.open_table(uri)) == WHOLE
