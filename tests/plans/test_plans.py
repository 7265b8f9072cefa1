"""EXPLAIN shows the plans of specification 2, "Query Execution", and they give the right rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import datafusion
import pytest

import memwal_sql as mw
from tests.each import each
from tests.plans.golden import Case, cases_in, check_plan, physical_plan, sorted_rows
from tests.plans.tables import TABLES, Built

HERE = Path(__file__).parent


class Setting:
    """A built table, mounted as `t` (and as `u` for joins), beside the same rows as plain Arrow."""

    def __init__(self, built: Built) -> None:
        config = datafusion.SessionConfig().with_target_partitions(2)
        self.mounted = datafusion.SessionContext(config)
        self.plain = datafusion.SessionContext(config)
        self.built = built
        for name in ("t", "u"):
            mw.register(self.mounted, name, built.table)
            self.plain.register_record_batches(name, [built.rows().to_batches()])
        # From here on the stale sets are known, so that counts are exact before a scan.
        self.mounted.sql("SELECT * FROM t").collect()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Setting]]:
    folder = tmp_path_factory.mktemp("plans")
    made = {name: Setting(build(folder)) for name, build in TABLES.items()}
    yield made
    for setting in made.values():
        setting.built.close()


@each("path, number, case", cases_in(HERE))
def test_plan_is_the_golden_one_and_gives_the_right_rows(
    settings: dict[str, Setting], path: Path, number: int, case: Case
) -> None:
    setting = settings[path.stem]
    check_plan(path, number, physical_plan(setting.mounted, case.sql))
    if case.sql.startswith("INSERT"):
        return  # what an insert does is shown in tests/sql
    found = setting.mounted.sql(case.sql).to_arrow_table()
    expected = setting.plain.sql(case.sql).to_arrow_table()
    if "LIMIT" in case.sql and "ORDER BY" not in case.sql:
        limit = int(re.findall(r"LIMIT (\d+)", case.sql)[0])
        everything = setting.plain.sql(re.sub(r"LIMIT \d+", "", case.sql)).to_arrow_table()
        assert found.num_rows == min(limit, everything.num_rows)
        assert set(sorted_rows(found)) <= set(sorted_rows(everything))
    else:
        assert sorted_rows(found) == sorted_rows(expected)


def _as_in_specification(plan: str) -> str:
    """Our names turned into those of the specification's example."""
    plan = plan.replace("region_region=", "region_").replace(
        "base_table[gen=-1], version=<n>", "base_table[gen=-1]"
    )
    return plan.replace("keys[", "bf[")  # MemTables have key indexes here


def test_scan_plan_is_the_specification_s_word_for_word(settings: dict[str, Setting]) -> None:
    """Specification 2, "Scan Queries"; the filter is the one that was pushed down."""
    plan = _as_in_specification(
        physical_plan(settings["two_regions"].mounted, "SELECT * FROM t WHERE val > 5")
    )
    assert plan == "\n".join(
        [
            "DeduplicateExec: partition_by=[pk], order_by=[_gen DESC, _rowaddr DESC]",
            "  UnionExec",
            "    ScanExec: base_table[gen=-1], filter=[val > 5]",
            "    ScanExec: region_A[gen=2], filter=[val > 5]",
            "    ScanExec: region_A[gen=1], filter=[val > 5]",
            "    ScanExec: region_B[gen=3], filter=[val > 5]",
            "    ScanExec: region_B[gen=2], filter=[val > 5]",
            "    ScanExec: region_B[gen=1], filter=[val > 5]",
        ]
    )


def test_point_lookup_plan_is_the_specification_s_word_for_word(
    settings: dict[str, Setting],
) -> None:
    """Specification 2, "Point Lookups": region A alone, newest first, the base table unguarded."""
    plan = _as_in_specification(
        physical_plan(settings["two_regions"].mounted, "SELECT * FROM t WHERE pk = 'A1'")
    )
    assert plan == "\n".join(
        [
            "CoalesceFirstExec: return_first_non_null",
            "  BloomFilterGuardExec: bf[region_A][gen=2]",
            "    TakeLastExec: region_A[gen=2], filter=[pk = 'A1']",
            "  BloomFilterGuardExec: bf[region_A][gen=1]",
            "    TakeLastExec: region_A[gen=1], filter=[pk = 'A1']",
            "  TakeLastExec: base_table[gen=-1], filter=[pk = 'A1']",
        ]
    )
