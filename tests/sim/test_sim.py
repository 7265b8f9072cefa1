"""Simulated runs end as they must, and a run is the same each time."""

from __future__ import annotations

from tests.program import run
from tests.sim.scenario import SCENARIOS
from tests.soak import SOAK


def simulate(*arguments: object) -> str:
    """By an interpreter of its own."""
    done = run("-m", "tests.sim", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_run_can_be_explained() -> None:
    simulate("--runs", len(SCENARIOS) * SOAK)


def test_a_run_is_replayed_step_by_step() -> None:
    assert simulate("jobs", 1) == simulate("jobs", 1)
