"""What public calls return prints for people, in a shell and in a notebook."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")


def results(folder: Path) -> dict[str, Any]:
    """One of each type, by what its text must begin with."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    table = mw.create_table(
        str(folder / "t"), schema, primary_key="id", regions=[mw.bucket("id", 4)]
    )
    writer = table.writer()
    written = writer.upsert([{"id": n, "n": n} for n in range(20)])
    made: dict[str, Any] = {
        f"Table('{table.uri}', version=": table,
        f"Overview('{table.uri}', version=3, rows=0, regions=4, unmerged=0, unflushed_rows=20)": (
            table.overview()
        ),
        f"TableWriter('{table.uri}', regions=4)": writer,
        "WriteResult(rows=20, reached='durable', regions=4)": written,
        "WriteResult(rows=0, reached='durable', regions=0, skipped=1, not_found=1)": writer.delete(
            [1, 99], when="t.n > 5"
        ),
        "JobRun('merge', '2 generations merged', 0.250 s)": mw.JobRun(
            "merge", "2 generations merged", 0.25
        ),
        f"{table.uri} at version ": mw.open_table(table.uri).check(),
        "Tags({})": table.tags,
        "Finding(severity=": mw.Finding(*["text"] * 4),  # type: ignore[arg-type]
        "Triggers(merge_generations=4": mw.Triggers(),
        "WriterOptions(durable=True": mw.WriterOptions(),
    }
    with table.writer() as closed:
        pass
    return {**made, f"TableWriter('{table.uri}', closed)": closed}


def test_results_print_what_they_are(tmp_path: Path) -> None:
    for start, result in results(tmp_path).items():
        text = repr(result)
        assert text.startswith(start), (start, text)
        assert len(text) < 600 and not UUID.search(text) and " object at 0x" not in text, text


def test_a_notebook_draws_a_tree_once_and_in_a_font_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A console of rich draws by itself in a notebook, unless it is told not to."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    table = mw.create_table(str(tmp_path / "t"), pa.schema({"id": pa.int64()}), primary_key="id")
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("drawn by rich"))
    for shown in (table, table.overview()):
        html = shown._repr_html_()
        assert re.match(r'<pre style="font-family:[^"]*monospace', html)
        assert "base table" in html
    assert "├── base table" in str(table.overview()) and "\x1b" not in str(table.overview())
    assert capsys.readouterr().out == ""
