"""Every file of sql_examples/, over the first days of the year, against the plain CSV."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from demo.checks import Oracle, explain, register_ordinary, run_example
from demo.events import Events
from demo.examples import FOLDER, Example, load_examples
from demo.flights import PRIMARY_KEY, SCHEMA, final_state, load_flights, load_ordinary_tables
from demo.progress import FLUSHED_PARTS, Progress, replay
from memwal_sql.read.live.settings import Live
from tests.each import each

EXAMPLES = load_examples()
ONE_WEEK = date(2013, 1, 7)
CHANGED_KEY = (date(2013, 1, 1), "UA", 1545, "EWR")
"""A flight that the INSERT example changes."""

PLANS = {
    "01_point_lookup": ("CoalesceFirstExec", "BloomFilterGuardExec", "TakeLastExec"),
    "02_in_lookup": ("CoalesceFirstExec", "TakeLastExec"),
    "03_filter": ("DeduplicateExec", "ScanExec: base_table[gen=-1]", "dep_delay"),
    "04_pruned_scan": ("DeduplicateExec", "ScanExec: region_carrier=HA"),
    "06_join_airlines": ("HashJoinExec", "DeduplicateExec"),
    "08_self_join": ("HashJoinExec", "DeduplicateExec"),
    "11_window": ("BoundedWindowAggExec", "DeduplicateExec"),
    "13_anti_join": ("Anti", "DeduplicateExec"),
    "19_explain_analyze": ("DeduplicateExec", "output_rows="),
}


@dataclass(frozen=True)
class Replayed:
    """A table with flushed generations and MemTables, whose writer is still open."""

    table: mw.Table
    expected: pa.Table
    ordinary: dict[str, pa.Table]

    def context(self, table: mw.Table) -> datafusion.SessionContext:
        context = datafusion.SessionContext()
        mw.register(context, "flights", table, consistency="strong")
        register_ordinary(context, self.ordinary)
        return context

    def oracle(self) -> Oracle:
        return Oracle(self.expected, self.ordinary)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    flights = load_flights(ONE_WEEK)
    uri = tmp_path_factory.mktemp("examples") / "flights"
    table = mw.create_table(str(uri), SCHEMA, PRIMARY_KEY, regions=[mw.identity("carrier")])
    with table.writer() as writer:
        for _ in replay(Events.of(flights), writer, Progress()):
            pass
        with Live.set(enabled=0):  # the examples show the plans of files
            yield Replayed(table, final_state(flights), load_ordinary_tables())


def names(examples: list[Example]) -> list[str]:
    return [example.name for example in examples]


READING = [example for example in EXAMPLES if not example.writes]
WRITING = [example for example in EXAMPLES if example.writes]


@each("example", READING)
def test_an_example_answers_as_the_plain_csv_does(example: Example, replayed: Replayed) -> None:
    outcome = run_example(replayed.context(replayed.table), example, replayed.oracle())
    assert outcome.problem is None
    assert outcome.answer is None or outcome.answer.num_rows > 0
    for part in PLANS.get(example.name, ()):
        assert part in (outcome.plan or "")


@pytest.mark.parametrize("example", WRITING, ids=names(WRITING))
def test_an_example_that_writes_has_its_effect(
    example: Example, replayed: Replayed, tmp_path: Path
) -> None:
    shutil.copytree(replayed.table.uri, tmp_path / "copy")
    context = replayed.context(mw.open_table(str(tmp_path / "copy")))
    outcome = run_example(context, example, replayed.oracle())
    assert outcome.problem is None
    assert replayed.table.get([CHANGED_KEY])["dep_delay"].to_pylist() == [2]
    assert mw.open_table(str(tmp_path / "copy")).get([CHANGED_KEY])["dep_delay"].to_pylist() == [-3]


def test_a_pruned_scan_reads_the_base_table_and_one_region(replayed: Replayed) -> None:
    (example,) = (example for example in EXAMPLES if example.name == "04_pruned_scan")
    plan = explain(replayed.context(replayed.table), example.sql)
    scans = [line.split("[")[0].strip() for line in plan.splitlines() if "ScanExec: " in line]
    assert set(scans) == {"ScanExec: base_table", "ScanExec: region_carrier=HA"}


def test_the_table_under_the_examples_has_generations_and_memtables(replayed: Replayed) -> None:
    context = replayed.context(replayed.table)
    rows = context.sql(
        "SELECT state, count(DISTINCT generation) AS n FROM flights$generations GROUP BY state"
    )
    found = {row["state"]: row["n"] for row in rows.to_pylist()}
    assert found["flushed"] >= FLUSHED_PARTS
    assert found["memtable"] >= 1


def test_examples_are_numbered_without_gaps() -> None:
    assert [int(example.name[:2]) for example in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


def test_metadata_examples_are_the_only_ones_that_are_not_compared() -> None:
    free = [example.name for example in EXAMPLES if example.explains or example.reads_metadata]
    assert free == ["16_regions", "17_generations", "18_wal", "19_explain_analyze"]


@each("text", ["SELECT 1;\n", "-- One line\nSELECT 1;\n", "-- a\n"])
def test_a_file_without_two_lines_of_comment_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "01_bad.sql").write_text(text)
    with pytest.raises(ValueError, match="01_bad"):
        load_examples(tmp_path)


def test_every_file_of_the_folder_is_an_example() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.*")) == names(EXAMPLES)
