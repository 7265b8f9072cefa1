"""Every example of the README and of the manual does what the page says, in the page's order."""

from __future__ import annotations

import doctest
import logging
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.cli.calls import call
from tests.docs.pages import MANUAL, ROOT, Block, block, blocks, page
from tests.model.resident import another_store

MANUAL_PAGES = sorted(str(path.relative_to(ROOT)) for path in MANUAL.rglob("*.md"))
PAGES = ["README.md", *(path for path in MANUAL_PAGES if blocks(path))]
ALONE = ("README.md", "docs/index.md", "docs/recipes/")  # these do not go on from the README
ELSEWHERE = {"pyspark"}  # tests/spark/test_manual.py runs these
INSTALLING = ("pip", "make")  # not run here: tests/install builds, installs and runs the wheel


README = block("README.md", "python")


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of a page's examples, which run in a folder of their own; what they set for the
    process is put back."""
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("memwal_sql")
    level = logger.level
    names: dict[str, Any] = {}
    with another_store():
        yield names
    logger.setLevel(level)
    for value in list(names.values()):
        if isinstance(value, mw.Table):
            value.close()  # its writer of INSERT


def run_python(text: str, names: dict[str, Any]) -> str:
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(text, "example", "exec"), names)
    return printed.getvalue()


def run_sql(text: str, names: dict[str, Any]) -> str:
    """Its statements over the page's session; a line for each row."""
    lines = []
    for statement in filter(str.strip, text.split(";")):
        values = {"q": names["q"]} if "$q" in statement else {}
        rows = names["context"].sql(statement, **values).to_pylist()
        lines += [" | ".join(str(value) for value in row.values()) + "\n" for row in rows]
    return "".join(lines)


def arguments_of(command: str) -> list[str]:
    """What a shell gives to `memwal` for a line: it replaces variables in double quotes."""
    shown = f"memwal() {{ printf '%s\\0' \"$@\"; }}; {command}"
    shell = ["sh", "-c", shown]
    words = subprocess.run(shell, capture_output=True, text=True, env={}, check=False)
    assert words.returncode == 0, words.stderr
    return words.stdout.split("\0")[:-1]


def run_commands(text: str) -> None:
    """Each line that begins with `$`; the lines below it are the words that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        assert command.startswith("memwal "), command
        printed = call(*arguments_of(command))
        assert not output or printed.split() == output.split()


def check_installing(text: str) -> None:
    """Commands that are named, and not run: they are of known programs, and targets exist."""
    makefile = page("Makefile")
    for line in filter(None, text.splitlines()):
        program, *arguments = shlex.split(line, comments=True)
        assert program in INSTALLING, line
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE)


def run(example: Block, names: dict[str, Any]) -> None:
    """Raises AssertionError for an example that does not do what its page says, and for one in a
    language that nobody runs."""
    if example.language == "python":
        printed = run_python(example.text, names)
        assert example.output in (None, printed)
    elif example.language == "sql":
        printed = run_sql(example.text, names)
        assert example.output in (None, printed)
    elif example.language == "console":
        run_commands(example.text)
    elif example.language in ("sh", "shell"):
        check_installing(example.text)
    elif example.language == "sketch":  # of what needs software that is not installed
        compile(example.text, "sketch", "exec")
    else:
        assert example.language in ELSEWHERE


@pytest.mark.parametrize("path", PAGES)
def test_every_example_of_a_page_does_what_it_says(path: str, names: dict[str, Any]) -> None:
    """A page of the manual goes on from the README's example, but for those that stand alone."""
    before = [] if path.startswith(ALONE) else [README]
    for example in [*before, *blocks(path)]:
        run(example, names)


def test_every_example_of_a_docstring_prints_what_it_says(
    names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins with `table`, the README's, and the modules that programs import."""
    run(README, names)
    names["table"].close()
    modules = {"mw": mw, "pa": pa, "lance": lance, "datafusion": datafusion, "timedelta": timedelta}
    finder, printed = doctest.DocTestFinder(recurse=False), StringIO()
    owners = (mw, mw.Table, mw.TableWriter)
    calls = [getattr(owner, name) for owner in owners for name in dir(owner) if name[0] != "_"]
    examples = {
        example.name: example
        for call in calls
        for example in finder.find(call, getattr(call, "__name__", "value"), module=False)
        if example.examples
    }
    assert len(examples) > 15
    failed = 0
    for name, example in examples.items():
        folder = tmp_path / f"for {name}"
        shutil.copytree(tmp_path / "weather", folder / "weather")
        monkeypatch.chdir(folder)
        example.globs = {**modules, "table": mw.open_table("weather")}
        failed += doctest.DocTestRunner(verbose=False).run(example, out=printed.write).failed
    assert not failed, printed.getvalue()


@pytest.mark.parametrize(
    "wrong",
    [
        Block("python", "print(1)", "2\n"),
        Block("sql", "SELECT 1", "2\n"),
        Block("console", "$ memwal sql weather 'SELECT 1 AS a'\na 2\n"),
        Block("console", "$ rm weather"),
        Block("console", '$ memwal sql weather "SELECT id = $d FROM t" --param d=5'),
        Block("sh", "make nothing"),
        Block("yaml", "a: 1"),
    ],
)
def test_an_example_that_does_something_else_is_found(wrong: Block, names: dict[str, Any]) -> None:
    run(README, names)
    with pytest.raises(AssertionError):
        run(wrong, names)
