"""Damage to any file of a table, by accident or by somebody hostile: every use of it gives right
rows or a typed error.

No crash, no hang, no file outside of the table touched and no memory above 1 GB: the attempts run
in processes of their own, whose last line names the seed. `mutations` says what is done to which
files; hostile files that agree with one another may be believed, and damage never is.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import program
from tests.hostile.mutations import KINDS
from tests.soak import IS_SOAK

pytestmark = pytest.mark.slow

SEEDS = 20 * len(KINDS) if IS_SOAK else len(KINDS)
CHILDREN = 3 if IS_SOAK else 1


def run(*arguments: object, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    made = program.run("-m", "tests.hostile.template", folder)
    assert made.returncode == 0, made.stderr[-3000:]
    return folder


@pytest.mark.parametrize("child", range(CHILDREN))
def test_damage_is_read_right_or_told(template: Path, child: int) -> None:
    first, last = (SEEDS * place // CHILDREN for place in (child, child + 1))
    mode = ["all"] if IS_SOAK else []
    called = ["tests.hostile.child", template, first, last, *mode]
    done = run(*called, seconds=300 + 60 * (last - first))
    lines = done.stdout.splitlines()
    again = f"python -m {called[0]} {template} SEED SEED+1 {' '.join(mode)}"
    wrong = [line for line in lines if line.startswith("WRONG")]
    assert wrong == [], "\n".join([*wrong, again])
    assert done.returncode == 0, (done.returncode, lines[-1:], done.stderr[-3000:], again)
    assert lines[-1] == "DONE", (lines[-1:], done.stderr[-3000:], again)
    assert len(lines) == last - first + 1
