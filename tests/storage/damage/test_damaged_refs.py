"""Lance's tags and lists of indexes that can't be read, and names that no writer gives a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memwal_sql as mw
from memwal_sql.cli.app import app
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.storage.paths import reversed_name
from tests.model.lance_manifest import rewrite_indexes
from tests.model.process import as_another_process
from tests.model.small_rows import make_rows
from tests.model.writing import flush_rows, session_of

NOW = timedelta(0)


def _select(about: str) -> Callable[[Any], object]:
    return lambda table: mw.sql(
        session_of("t", table), f'SELECT count(*) FROM "t${about}"'
    ).to_pylist()


USES: dict[str, Callable[[Any], object]] = {
    "list": lambda table: table.tags.list(),
    "history": _select("history"),
    "snapshots": _select("snapshots"),
    "gc": lambda table: table.collect_garbage(older_than=NOW),
    "clean up": lambda table: table.collect_garbage(older_than=NOW, versions_older_than=NOW),
    "open": lambda table: mw.open_table(table.uri, version="tagged"),
}


def test_a_tag_that_can_not_be_read_is_named_and_let_go_by_its_deletion(
    table: Any, uri: str
) -> None:
    flush_rows(table, make_rows(1, 2))
    table.merge()
    table.tags.create("tagged", table.snapshot_regions())
    table.tags.create("whole", table.snapshot_regions())
    rows = table.count_rows()
    path = Path(uri) / "_refs/tags/tagged.json"
    right = path.read_bytes()
    version = right.index(b'"version": ') + len(b'"version": ')
    for bad in (
        b"",
        right[:-9],
        b"{}",
        b"[]",
        bytes(20),
        b"\xff\xfe",
        right[:version] + b"-" + right[version:],
        right[:version] + b"x" + right[version:],
        right[:version] + b"18446744073709551615, " + right[right.index(b'"createdAt"') :],
    ):
        path.write_bytes(bad)
        for name, use in USES.items():
            with pytest.raises(mw.CorruptFileError, match=r"_refs/tags(/tagged\.json)? is damaged"):
                use(table)
                raise AssertionError((name, bad))
        assert not table.check().ok
    assert table.count_rows() == rows
    path.unlink()
    for name, use in USES.items():
        if name != "open":
            use(table)
    assert table.tags.list().keys() == {"whole"}


def test_an_entry_at_a_position_that_no_writer_comes_to_is_passed_over(
    table: Any, uri: str
) -> None:
    with table.writer() as writer:
        writer.upsert(make_rows(1))
    rows = table.count_rows()
    for entry in sorted(Path(uri).glob("_mem_wal/*/wal/*.arrow")):
        for position in (2**63, 2**64 - 1):
            entry.with_name(f"{reversed_name(position)}.arrow").write_bytes(entry.read_bytes())
    for about in ("files", "wal"):
        _select(about)(table)
    for command in ("wal", "info", "check"):
        called = CliRunner().invoke(app, [command, table.uri])
        assert called.exit_code != ExitCode.BUG, called.output
    with table.writer() as writer:
        writer.upsert(make_rows(1_000))
    table.collect_garbage(older_than=NOW)
    assert table.count_rows() == rows + 1


@pytest.mark.parametrize("twice", [False, True])
def test_a_damaged_list_of_indexes_is_typed(table: Any, uri: str, twice: bool) -> None:
    flush_rows(table, make_rows(1, 2))
    table.merge()
    table.create_index("text", "FTS")
    newest = min(Path(uri).glob("_versions/*.manifest"))

    def damage(section: Any) -> None:
        (index,) = (one for one in section.indices if one.name == "text_idx")
        if twice:  # which ends the process where Lance is asked for its statistics
            section.indices.append(index)
        else:
            index.fragment_bitmap = b"\xff" * 7

    rewrite_indexes(newest, damage)
    uses: dict[str, Callable[[Any], object]] = {
        "indexes": lambda table: table.indexes(),
        "overview": lambda table: str(table.overview()),
        "dry gc": lambda table: table.collect_garbage(dry_run=True, older_than=NOW),
        "gc": lambda table: table.collect_garbage(older_than=NOW),
        "build": lambda table: table.build_indexes(),
        "create": lambda table: table.create_index("text", "FTS", replace=True),
        "drop": lambda table: table.drop_index("text_idx"),
        "drop column": lambda table: table.drop_columns("text"),
        "search": lambda table: table.full_text_search("text", "a", 3),
        "enable": lambda table: mw.enable(table.uri, primary_key="id"),
    }
    typed = set()
    for name, use in uses.items():
        with as_another_process():
            try:
                with mw.open_table(uri) as opened:
                    use(opened)
            except mw.MemWalError:
                typed.add(name)
    assert {"indexes", "dry gc", "gc", "build", "create", "drop"} <= typed
    for command in ("info", "check", "gc"):
        called = CliRunner().invoke(app, [command, uri])
        assert called.exit_code not in (0, ExitCode.BUG), called.output


def test_an_index_that_a_generation_lists_twice_ends_no_check(table: Any, uri: str) -> None:
    table.create_index("text", "FTS")
    flush_rows(table, make_rows(1, 2))
    for file in Path(uri).glob("_mem_wal/*/*_gen_*/_versions/*.manifest"):
        rewrite_indexes(file, lambda section: section.indices.append(section.indices[0]))
    with as_another_process():
        found = mw.open_table(uri).check()
    assert not found.ok and "lists a segment of an index twice" in str(found.to_arrow().to_pylist())
