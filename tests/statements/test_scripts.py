"""Scripts of statements, whose answers and errors stand below them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import memwal_sql as mw
from tests.statements.test_corpus import shown

_SCRIPTS = Path(__file__).with_name("scripts.sql").read_text(encoding="utf-8").split("\n\n-- ")[1:]


def steps(lines: list[str]) -> Iterator[tuple[str, str | None, str | None]]:
    """The statements, each with its answer and what its error says, if they are given."""
    statement = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith(("=>", "!!")):
            continue
        statement = f"{statement}\n{line}" if line.startswith(" ") else line
        if not after.startswith(" "):
            answer = after[2:].strip() if after.startswith("=>") else None
            yield statement, answer, after[3:] if after.startswith("!!") else None


@pytest.mark.parametrize("script", _SCRIPTS, ids=lambda script: script.partition("\n")[0])
def test_a_script_answers_as_it_says(script: str, tmp_path: Path) -> None:
    ctx = mw.SessionContext()
    mw.catalog(ctx, tmp_path, "lake")
    for text, answer, words in steps(script.strip().splitlines()[1:]):
        statement = text.replace("{}", str(tmp_path))
        if words is not None:
            with pytest.raises(mw.InvalidCallError, match=f"(?s){words}"):
                mw.sql(ctx, statement)
            continue
        rows = mw.sql(ctx, statement).to_pylist()
        assert answer is None or shown(rows) == answer, statement
