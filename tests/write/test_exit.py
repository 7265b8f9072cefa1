"""A process ends with the exit code of its script, and all rows, whatever is under way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

import pytest

import memwal_sql as mw
from exec_nodes.base.threads import threads_of
from memwal_sql.errors import InvalidCallError
from tests.model.small_rows import make_rows
from tests.soak import IS_SOAK
from tests.write import ending_child
from tests.write.ending_child import KINDS, LEFT, ROWS

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-W", "ignore:lance is not fork-safe", "-m", ending_child.__name__]
# Processes side by side, each with more to do than a processor has time for.
AT_ONCE = 8


def check(kind: str, folder: Path, code: int, said: str) -> None:
    leaves = kind in LEFT
    assert code == (KINDS | LEFT)[kind][1], (kind, said)
    if leaves:
        assert f"exit code {code}" in said and f"of {folder}/table" in said, said
    elif code == 0:
        assert not said, (kind, said)
    if not kind.endswith(" log"):
        assert mw.open_table(f"{folder}/table").count_rows() == ROWS, kind


def test_each_script_ends_with_its_exit_code_and_all_rows(tmp_path: Path) -> None:
    """A thread of a flush that came out of native code ended the process by SIGABRT."""
    done = subprocess.run(
        [*COMMAND, tmp_path], cwd=ROOT, capture_output=True, text=True, check=True
    )
    codes = json.loads(done.stdout)
    assert codes.keys() == KINDS.keys() | LEFT.keys()
    for kind, code in codes.items():
        said = (tmp_path / kind / "stderr").read_text(encoding="utf-8")
        check(kind, tmp_path / kind, code, said)


def test_a_process_that_ends_takes_no_buffered_rows(tmp_path: Path) -> None:
    """Functions of `atexit` that were registered before the package was imported run last."""
    table = ending_child.table_in(str(tmp_path))
    late = patch.object(threads_of(os.getpid()), "over", True)
    with table.writer(durable=False) as buffered, table.writer() as durable, late:
        with pytest.raises(InvalidCallError, match="durable=True"):
            buffered.upsert(make_rows(1))
        durable.upsert(make_rows(2))
    assert table.to_arrow()["id"].to_pylist() == [2]


@pytest.mark.timeout(3600)
@pytest.mark.skipif(not IS_SOAK, reason="each is a process of its own, beside others: minutes")
def test_two_hundred_processes_beside_load(tmp_path: Path) -> None:
    kinds = list(enumerate(islice(cycle(KINDS), 200)))
    while kinds:
        some, kinds = kinds[:AT_ONCE], kinds[AT_ONCE:]
        children = []
        for number, kind in some:
            folder = tmp_path / str(number)
            folder.mkdir()
            command = [*COMMAND, str(folder), kind]
            child = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            children.append((kind, folder, child))
        for kind, folder, child in children:
            said = child.communicate(timeout=300)[1]
            check(kind, folder, child.returncode, said)
