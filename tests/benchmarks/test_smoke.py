"""Every benchmark runs at small sizes and checks its own answers; no bound is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import soak
from benchmarks.__main__ import BENCHMARKS, run
from benchmarks.peers import __main__ as peers
from benchmarks.support.result import print_report, write_json


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_runs_and_its_answers_are_right(name: str, tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    results = run([name], tmp_path / "tables", True, console)
    assert results
    assert all(result.ours > 0 for result in results)
    print_report(results, {"python": "3"}, console)
    write_json(results, {"python": "3"}, tmp_path / "figures.json")
    assert results[0].work in console.export_text()
    assert (tmp_path / "figures.json").read_text().count('"work"') == len(results)


def test_peers_do_the_same_work_and_their_answers_are_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are installed for other tests, too."""
    names = ["memwal_sql", "LanceDB", "DuckDB", "SQLite"]
    only = [word for name in names for word in ("--only", name)]
    assert peers.main(["--small", "--folder", str(tmp_path), *only]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {name} (" in printed for name in names)


def test_all_benchmarks_of_a_run_share_one_folder(tmp_path: Path) -> None:
    names = ["full-scan", "durable-upserts", "generations-scan"]
    assert len(run(names, tmp_path, True, Console(record=True))) > len(names)


def test_a_table_in_use_gives_right_answers_and_is_whole_afterwards(tmp_path: Path) -> None:
    """A few seconds of `make soak`; whether figures stay flat takes longer to tell."""
    assert soak.main(["--minutes", "0.1", "--folder", str(tmp_path)]) in (0, 1)
