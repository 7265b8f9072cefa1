"""The findings of `table.check()`, and how they print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import partial

import pyarrow as pa

from exec_nodes.lance.errors import is_panic

FINDINGS = pa.schema(
    [
        pa.field(name, pa.string(), nullable=False)
        for name in ("severity", "check", "what", "where", "remedy")
    ]
)
FROM_A_COPY = "restore it from a copy; without one, its rows are lost"


class Severity(StrEnum):
    """The gravity of a finding, worst first."""

    ERROR = "error"  # rows are lost, wrong, or can't be read
    WARNING = "warning"  # rows are right, but reads are slower or less safe
    INFO = "info"  # nothing is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact that a check reports.

    Attributes:
        where: a path relative to the table's root, a region or a version.
        what: the fact, as a sentence.
        remedy: the way to mend it.
        check: the name of the check.
    """

    severity: Severity
    where: str
    what: str
    remedy: str
    check: str = ""


error = partial(Finding, Severity.ERROR)
warning = partial(Finding, Severity.WARNING)
info = partial(Finding, Severity.INFO)


@dataclass(frozen=True, slots=True)
class Probe:
    """A check of one part of a table: its findings, and the probes of smaller parts.

    An error that ends a probe becomes a finding at `where`, and the other probes go on.
    """

    subject: str
    where: str
    parts: Iterable[Finding | Probe]
    remedy: str = "follow this finding's remedy or the others', and check again"

    def run(self, check: str, note: Callable[[BaseException], None]) -> Iterator[Finding]:
        """All findings, under the name of this check; `note` gets each error that ends a probe."""
        try:
            for part in self.parts:
                if isinstance(part, Probe):
                    yield from part.run(check, note)
                else:
                    yield replace(part, check=check)
        except BaseException as failure:
            if not isinstance(failure, Exception) and not is_panic(failure):
                raise
            note(failure)
            what = f"{self.subject} can't be read: {first_line(failure)}"
            yield replace(error(self.where, what, self.remedy), check=check)


def first_line(failure: BaseException) -> str:
    """The first line of an error's message; Lance's go on with backtraces."""
    return next(iter(str(failure).splitlines()), type(failure).__name__)


def lacking_in(first: int, end: int, present: Iterable[int]) -> str:
    """The numbers from `first` up to `end`, exclusive, that are not `present`, as text; "" if there
    are none. The time depends on the numbers present, not on the range."""
    runs, start = [], first
    for number in (*sorted({number for number in present if first <= number < end}), end):
        if number > start:
            runs.append(f"{start}" if number == start + 1 else f"{start} to {number - 1}")
        start = number + 1
    return ", ".join(runs)


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All findings of a check, worst first. Prints as text; `to_arrow` gives a table.

    `checks` are the names of the checks that ran, `uri` and `version` what they checked.
    """

    uri: str
    version: int
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether every row is present and right: no finding is an error."""
        return not self.of(Severity.ERROR)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)

    def to_arrow(self) -> pa.Table:
        """One row per finding."""
        rows = [{k: str(v) for k, v in asdict(finding).items()} for finding in self.findings]
        return pa.Table.from_pylist(rows, FINDINGS)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        counts = [
            f"{len(matching)} {kind.value}" for kind in Severity if (matching := self.of(kind))
        ]
        summary = ", ".join(counts) or "nothing found"
        lines = [f"{self.uri} at version {self.version}: {len(self.checks)} checks, {summary}"]
        for finding in self.findings:
            lines += [
                f"{finding.severity.value.upper():7} {finding.check}: {finding.what}",
                f"        where:  {finding.where}",
                f"        remedy: {finding.remedy}",
            ]
        return "\n".join(lines)

    __repr__ = __str__
