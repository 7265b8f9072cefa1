"""Tables of cases that one test goes through."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls a test with each case, as `pytest.mark.parametrize` does, but within one test: for
    tables of cases that need no fixture of their own each. Fixtures are shared by all cases, but
    each case has its own `tmp_path`, and its own `uri` where it makes the table itself.

    All cases are tried; each failure names its case, and several are raised as a group.
    """
    parameters = [name.strip() for name in names.split(",")]
    table = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        assert set(parameters) <= set(signature.parameters), f"{test.__name__} needs {parameters}"
        assert table, f"{test.__name__} has no cases"

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            makes_table = "uri" in fixtures and not Path(fixtures["uri"]).exists()
            for number, case in enumerate(table):
                values = case if len(parameters) > 1 else (case,)
                own = _of_a_case(number, fixtures, makes_table)
                try:
                    test(**fixtures | own, **dict(zip(parameters, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"case {case!r}")
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} cases", failures)

        shared = [p for name, p in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=shared)  # type: ignore[attr-defined]
        return run

    return decorate


def refusals(path: Path) -> Iterator[tuple[str, str]]:
    """The statements of a file, each with a regular expression for its error: one case a line, as
    `statement !! words`, in which `\\n` is the end of a line of the statement."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("-- "):
            statement, mark, words = line.rpartition(" !! ")
            assert mark, line
            yield statement.replace("\\n", "\n"), words


def _of_a_case(number: int, fixtures: dict[str, Any], makes_table: bool) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if makes_table:
        own["uri"] = f"{fixtures['uri']}-{number}"
    if "tmp_path" in fixtures and "table" not in fixtures:
        own["tmp_path"] = fixtures["tmp_path"] / str(number)
        own["tmp_path"].mkdir()
    return own
