"""The files over plain tables and over ours: a sample, with MEMWAL_SOAK all of them.

`MEMWAL_SEED=...` changes where rows lie; `python -m tests.sqllogictest` prints the counts.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak import IS_SOAK
from tests.sqllogictest import files
from tests.sqllogictest.compare import compared
from tests.sqllogictest.differences import expected
from tests.sqllogictest.records import records

SEED = os.environ.get("MEMWAL_SEED", "1")
SAMPLE = [
    "dml_delete.slt",
    "dml_update.slt",
    "update.slt",
    "insert.slt",
    "limit.slt",
]
PARTS = 24 if IS_SOAK else 2


@pytest.fixture(scope="module")
def crate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.unpack(tmp_path_factory.mktemp("crate"))


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_those_of_plain_tables(crate: Path, fast_folder: Path, part: int) -> None:
    compares = 0
    names = files.names(crate) if IS_SOAK else SAMPLE
    for number, name in enumerate(names[part::PARTS]):
        found = compared(crate, name, fast_folder / str(number), SEED)
        assert found.different.keys() == expected(name), (
            f"seed {SEED}: {found.told(expected(name))}"
        )
        compares += found.counts["equal"]
    assert compares


def test_reasons_are_for_records_that_are_there(crate: Path) -> None:
    for name in files.names(crate):
        path = files.path_of(crate, name)
        there = {one.name for one in records(path)} if expected(name) else set()
        assert expected(name) <= there
