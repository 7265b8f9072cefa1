"""Pictures of a table: the numbers are right, and nothing in them is taken for markup."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import memwal_sql as mw
from memwal_sql.view.overview import GenerationView, IndexView, Overview, RegionView
from memwal_sql.view.texts import count_text, share, size_text, visible, visible_lines
from tests.each import each
from tests.model.writing import upsert_rows

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("<b>n</b>", pa.int64())])


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "<b>n</b>": ids}, schema=SCHEMA)


def printed(thing: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined]


class Balanced(HTMLParser):
    """Collects the text, and fails on tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(html: str) -> str:
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    return parser.text


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return mw.create_table(
        str(tmp_path / "table & <i>"), SCHEMA, primary_key="id", regions=[mw.bucket("id", 2)]
    )


def test_the_tree_shows_progress_and_totals_of_what_waits(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows(*range(100)))
        writer.flush()
        table.merge()
        writer.upsert(rows(*range(40)))
        writer.flush()
        writer.upsert(rows(1, 2, 3))
        view = table.overview()
        shown = [printed(table), text_of(table._repr_html_())]
    assert (view.rows, view.unmerged, view.unflushed_rows) == (100, 2, 3)
    assert view.bytes > 0 and view.version == mw.open_table(table.uri).version
    assert [region.merged_generation for region in view.regions or ()] == [1, 1]
    assert sum(g.rows or 0 for r in view.regions or () for g in r.generations) >= 43
    assert [index.rows_indexed for index in view.indexes] in ([100], [0])
    for text in shown:
        assert "table & <i>" in text and "<b>n</b>" in text
        assert "merged up to generation 1, 1 to merge" in text
        assert "in front of it 2 regions, 2 generations to merge with 40 rows" in text
        assert "3 rows not flushed" in text
        assert "id_bucket=0" in text and "regions by bucket(id, 2)" in text


MARKUP = (
    "[link=javascript:alert(1)]x[/link]",
    "a[/b]",
    "[bold red]x",
    "<script>alert(1)</script>",
    "\x1b]8;;file:///etc\x1b\\x",
    "\x1bc\x9b2J",
    "\u202ex",
    "&lt;",
)


@each("name", MARKUP)
def test_a_name_is_no_markup_anywhere(name: str, uri: str) -> None:
    column = name.replace(".", "")
    schema = pa.schema([pa.field(column, pa.int64(), False), pa.field(column + "2", pa.string())])
    table = mw.create_table(uri, schema, column, regions=[mw.bucket(column, 2)])
    upsert_rows(table, pa.table([[1], ["x"]], schema=schema))
    table.create_index(column + "2", "INVERTED", name=f"of {column}")
    view = table.overview()
    terminal = Console(file=io.StringIO(), width=400, force_terminal=True, no_color=True)
    terminal.print(table)
    on_terminal = terminal.file.getvalue()  # type: ignore[attr-defined]
    styles = re.compile(r"\x1b\[[0-9;]*m")
    html = table._repr_html_()
    texts = [str(view), printed(view), styles.sub("", on_terminal), text_of(html)]
    for text in texts:
        assert "".join(text.split()).count("".join(visible(column).split())) >= 4, text
        assert visible_lines(text) == text
    assert "<a " not in html and "<script" not in html and visible_lines(html) == html


def test_a_version_shows_what_was_recorded_there(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert(rows(1))
        writer.flush()
        version = table.snapshot_regions()
        writer.upsert(rows(2))
        writer.flush()
        view = mw.open_table(table.uri, version=version).overview()
    assert view.version == version and view.unmerged == 1
    assert len(view.regions or ()) == 1


@pytest.mark.filterwarnings("ignore::memwal_sql.errors.UnrecordedVersionWarning")
def test_a_version_without_a_record_says_so(table: Any) -> None:
    old = mw.open_table(table.uri, version=table.version)
    assert old.overview().regions is None
    assert "no states of regions were recorded" in printed(old)
    assert "no states of regions were recorded" in text_of(old._repr_html_())


def test_a_table_without_regions_has_a_picture(table: Any) -> None:
    assert table.overview().regions == ()
    assert "0 rows" in printed(table) and "0 rows" in text_of(table._repr_html_())


def _large(regions: int, generations: int) -> Overview:
    views = tuple(
        RegionView(
            region_id=str(number),
            name=f"[red]r{number}",
            status="sealed",
            writer_epoch=1,
            merged_generation=0,
            current_generation=generations + 1,
            flushed_position=0,
            log_position=0,
            generations=tuple(
                GenerationView(g, "flushed", None, None) for g in range(1, generations + 1)
            ),
        )
        for number in range(regions)
    )
    index = IndexView("i<x>", ("a",), "FTS", None, True)
    return Overview("u", 1, ("a",), (("a", "int64"),), (), 5, 0, 1, views, (index,))


def test_of_very_many_parts_some_are_shown() -> None:
    view = _large(60, 25)
    for text in (printed(view), text_of(view._repr_html_())):
        assert "and 10 more regions" in text
        assert "[red]r49" in text and "[red]r50" not in text
        assert "60 regions, 1,500 generations to merge with ? rows, ?" in text
        assert "sealed" in text and "i<x>" in text and "? of the base table, maintained" in text


def test_short_texts() -> None:
    assert [size_text(n) for n in (None, 0, 999, 1000, 1_500_000, 10**18)] == [
        "?",
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "1000.0 PB",
    ]
    assert [count_text(n, "row") for n in (None, 1, 1200)] == ["? rows", "1 row", "1,200 rows"]
    assert [share(0, 0), share(1, 4), share(9, 4)] == [1.0, 0.25, 1.0]
