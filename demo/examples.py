"""The files of sql_examples/: a title, an idea and one or more statements each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "sql_examples"


@dataclass(frozen=True)
class Example:
    """One file: two lines of comment, then a statement."""

    name: str
    title: str
    idea: str
    sql: str

    @property
    def explains(self) -> bool:
        """Whether the statement is an EXPLAIN itself."""
        return self.sql.startswith("EXPLAIN")

    @property
    def writes(self) -> bool:
        """Whether the statement changes the table."""
        return self.sql.startswith("INSERT")

    @property
    def reads_metadata(self) -> bool:
        """Whether the statement reads a metadata table, which the plain CSV knows nothing of."""
        return "$" in self.sql

    @property
    def ordered(self) -> bool:
        """Whether the order of the answer's rows is part of the answer."""
        return "\nORDER BY" in self.sql

    @property
    def source(self) -> str:
        """The query whose rows an INSERT writes; only for an example that `writes`."""
        return self.sql[self.sql.index("SELECT") :]


def load_examples(folder: Path = FOLDER) -> list[Example]:
    """Every example, in the order of its number. Raises ValueError for a file without header."""
    return [_load(path) for path in sorted(folder.glob("*.sql"))]


def _load(path: Path) -> Example:
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) < 3 or not all(line.startswith("-- ") for line in lines[:2]):
        raise ValueError(f"{path} does not consist of two lines of comment and a statement")
    sql = "\n".join(lines[2:]).strip().removesuffix(";")
    return Example(path.stem, lines[0][3:], lines[1][3:], sql)
