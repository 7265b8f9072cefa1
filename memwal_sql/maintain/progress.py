"""The progress of a background job: one small record, the same for every job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come.

    Attributes:
        job: what is done, such as `merge` or `build_indexes`.
        region: the name of the region it is done to; None for the whole table.
        done: how many units are done, never more than `total`.
        total: how many there are as far as is known now; it may still grow.
        unit: what is counted, such as `rows`, `generations`, `files` or `indexes`.
    """

    job: str
    region: str | None
    done: int
    total: int
    unit: str


Report = Callable[[Progress], None]
"""Takes the progress of a job. It runs on the job's thread: what it raises ends the job."""


def report_nothing(progress: Progress) -> None:
    """The report of a job that nobody watches."""
