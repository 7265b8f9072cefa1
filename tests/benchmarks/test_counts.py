"""What a task sends and opens, counted at a small size: `python -m benchmarks.spark.counts`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.spark import counts


def test_a_few_tasks_and_regions_are_counted(tmp_path: Path) -> None:
    read = counts.read(tmp_path / "read", 3, 2, by_region=True)
    written = counts.written(tmp_path / "written", 4, 2, by_region=True)
    assert read["to a task, bytes"] < 400
    assert read["regions that a task opens to mask"] == 1
    assert written["from a task, bytes"] < 2_000
    assert written["staged objects that the driver opens"] <= 3 * 4
    assert all(number < 1_024 for name, number in {**read, **written}.items() if "MB" in name)
