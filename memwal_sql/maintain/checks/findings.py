"""What `table.check()` finds, and how it prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

FINDINGS = pa.schema(
    [
        pa.field("severity", pa.string(), nullable=False),
        pa.field("check", pa.string(), nullable=False),
        pa.field("what", pa.string(), nullable=False),
        pa.field("where", pa.string(), nullable=False),
        pa.field("remedy", pa.string(), nullable=False),
    ]
)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, as those of Lance go on with backtraces."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def lacking_in(first: int, end: int, present: Iterable[int]) -> str:
    """The numbers from `first` up to `end`, exclusive, that are not `present`, as text; "" where
    all are. However far apart the two are, it takes no longer than what is there."""
    runs, start = [], first
    for number in (*sorted({one for one in present if first <= one < end}), end):
        if number > start:
            runs.append(f"{start}" if number == start + 1 else f"{start} to {number - 1}")
        start = number + 1
    return ", ".join(runs)


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"  # rows are lost, wrong, or can't be read
    WARNING = "warning"  # what is there is right, but slower or less safe than it should be
    INFO = "info"  # nothing is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        what: what is the matter, in a sentence.
        where: a path relative to the table's root, a region or a version.
        remedy: what to do about it.
        check: the name of the check that found it.
    """

    severity: Severity
    what: str
    where: str
    remedy: str
    check: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings of a check, the worst first. Prints as text; `to_arrow` gives a table.

    `checks` are the names of the checks that ran, `uri` and `version` what they looked at.
    """

    uri: str
    version: int
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is there and right: no finding is an error."""
        return not self.of(Severity.ERROR)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(one for one in self.findings if one.severity is severity)

    def to_arrow(self) -> pa.Table:
        """One row a finding."""
        names = FINDINGS.names
        rows = [{name: str(getattr(one, name)) for name in names} for one in self.findings]
        return pa.Table.from_pylist(rows, FINDINGS)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        counts = [f"{len(found)} {kind.value}" for kind in Severity if (found := self.of(kind))]
        summary = ", ".join(counts) or "nothing found"
        lines = [f"{self.uri} at version {self.version}: {len(self.checks)} checks, {summary}"]
        for one in self.findings:
            lines += [
                f"{one.severity.value.upper():7} {one.check}: {one.what}",
                f"        where:  {one.where}",
                f"        remedy: {one.remedy}",
            ]
        return "\n".join(lines)

    __repr__ = __str__
