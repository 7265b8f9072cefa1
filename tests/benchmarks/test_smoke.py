"""Every benchmark runs at small sizes and checks its own answers; no bound is looked at.

Some run in each run of the tests, all with `MEMWAL_SOAK=10`.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import duckdb
import pytest
from rich.console import Console

from benchmarks.__main__ import BENCHMARKS, run
from benchmarks.large import __main__ as large
from benchmarks.peers import __main__ as peers
from benchmarks.peers import ducklake
from benchmarks.support.result import print_report, write_json
from tests.soak import IS_SOAK

QUICK = {
    "filtered-scan",
    "get-one",
    "sql-lookup",
    "statements",
    "warm-sql",
}


def test_benchmarks_run_in_one_folder_and_their_answers_are_right(tmp_path: Path) -> None:
    assert set(BENCHMARKS) > QUICK
    names = [name for name in BENCHMARKS if IS_SOAK or name in QUICK]
    console = Console(record=True, width=200)
    results = run(names, tmp_path / "tables", True, console)
    assert len(results) > len(names) and all(result.ours > 0 for result in results)
    print_report(results, {"python": "3"}, console)
    write_json(results, {"python": "3"}, tmp_path / "figures.json")
    assert all(result.work in console.export_text(clear=False) for result in results)
    assert (tmp_path / "figures.json").read_text().count('"work"') == len(results)


@pytest.mark.skipif(not IS_SOAK, reason="six processes; run by MEMWAL_SOAK=10")
def test_a_table_grows_and_a_chart_shows_it(tmp_path: Path) -> None:
    picture, figures = tmp_path / "chart.svg", tmp_path / "figures.json"
    files = ["--folder", str(tmp_path), "--chart", str(picture), "--output", str(figures)]
    assert large.main(["--rows", "1000", "3000", "--regions", "3", *files]) == 0
    assert [set(each) for each in json.loads(figures.read_text())] == [{"1000", "3000"}, {"3"}]
    drawn = [element.tag.rpartition("}")[2] for element in ElementTree.parse(picture).iter()]
    assert drawn.count("polyline") == drawn.count("rect") > 0


def test_peers_do_the_same_work_and_their_answers_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are installed for other tests, too; others are left out by name."""

    def without() -> str:
        raise duckdb.IOException("no server\nin reach")

    monkeypatch.setattr(ducklake, "_extension", without)
    names = ["memwal_sql", "LanceDB", "DuckDB", "SQLite"]
    only = [word for name in names for word in ("--only", name)]
    only += ["--only", "DuckLake", "--chart", str(picture := tmp_path / "chart.svg")]
    assert peers.main(["--small", "--folder", str(tmp_path), *only]) == 0
    printed = capsys.readouterr()
    assert printed.err == "DuckLake was not measured: no server\n"
    assert all(f"| {name} (" in printed.out for name in names)
    bars = [e for e in ElementTree.parse(picture).iter() if e.tag.endswith("rect")]
    assert len(bars) == 3 * len(names)
