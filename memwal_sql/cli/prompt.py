"""Statements that a terminal asks for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from memwal_sql.cli.output import print_line, remark
from memwal_sql.errors import MemWalError
from memwal_sql.statements.queries.parsed import statement_texts

with suppress(ImportError):
    import readline  # noqa: F401  # `input` then has a history, and lines can be edited

_FIRST, _NEXT = "memwal> ", "     -> "
_ENDS = frozenset(("exit", "quit"))


def prompt(answer: Callable[[str], None], ask: Callable[[str], str] = input) -> None:
    """Answer each text that ends with a semicolon, until the end of the input, `exit` or `quit`.
    Ctrl-C drops the text, or stops its statement; an error ends its statement only."""
    lines: list[str] = []
    while True:
        try:
            lines.append(ask(_NEXT if lines else _FIRST))
            if len(lines) == 1 and lines[0].strip().rstrip(";").lower() in _ENDS:
                return
            text = "\n".join(lines)
            if not text.strip():
                lines = []
            elif _is_whole(text):
                lines = []
                answer(text)
        except EOFError:
            print_line("")
            return
        except KeyboardInterrupt:
            lines = []
            print_line("")
        except Exception as error:  # whatever it is, the session goes on
            remark(f"{type(error).__name__}: {error}", "red")


def _is_whole(text: str) -> bool:
    """Whether it ends with a semicolon that is not within quotes or a remark."""
    if not text.rstrip().endswith(";"):
        return False
    try:
        return len(statement_texts(text.rstrip() + "x")) > len(statement_texts(text))
    except (MemWalError, ValueError):
        return False  # quotes are open
