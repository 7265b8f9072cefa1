"""The table of mutants: the TOML files of this folder."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes:
        rule: the protocol rule of ARCHITECTURE.md that it breaks, an invariant, or a subject.
        change: what the code does then.
        file: the file that is changed, from the root of the repository.
        old: a text that occurs once in the file.
        new: what stands in its place.
        tests: files or tests below `tests/`, of which one must fail.
        equivalent: why no test can fail; empty where one must.
    """

    rule: str
    change: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def changed(self) -> str | None:
        """The changed file; None where it does not have the old text once."""
        path = ROOT / self.file
        text = path.read_text() if path.exists() else ""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def mutants() -> Mapping[str, Mutant]:
    """All of them, by id."""
    table: dict[str, Mutant] = {}
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for name, fields in tomllib.loads(path.read_text()).items():
            if name in table:
                raise ValueError(f"{path.name} has {name} again")
            table[name] = Mutant(**{**fields, "tests": tuple(fields["tests"])})
    return table
