"""Simulated runs end as they must, and a run is the same each time."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT
from tests.program import run
from tests.sim.scenario import SCENARIOS
from tests.soak import SOAK


def simulate(*arguments: str) -> str:
    """By an interpreter of its own, whose hashes of texts are others."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.sim", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_every_run_can_be_explained() -> None:
    done = run("-m", "tests.sim", "--runs", len(SCENARIOS) * SOAK)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_run_is_replayed_step_by_step() -> None:
    assert simulate("jobs", "1") == simulate("jobs", "1")
