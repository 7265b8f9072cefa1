"""The manual as a whole: its links, its place in the site, the names of the API."""

from __future__ import annotations

import re
from pathlib import Path

import memwal_sql as mw
from tests.docs.pages import MANUAL, ROOT, anchors, block, blocks, links, page
from tests.each import each

MANUAL_PAGES = sorted(str(path.relative_to(ROOT)) for path in MANUAL.rglob("*.md"))
ENTRIES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]


@each("path", [*ENTRIES, *MANUAL_PAGES])
def test_a_link_leads_to_a_page_and_its_heading(path: str) -> None:
    for link in links(path):
        target, _, anchor = link.partition("#")
        linked = (ROOT / path).parent / target if target else ROOT / path
        assert linked.exists(), link
        assert not anchor or anchor in anchors(str(linked.resolve().relative_to(ROOT))), link


@each("path", MANUAL_PAGES)
def test_a_page_is_in_the_site_and_links_to_nothing_outside_of_it(path: str) -> None:
    assert Path(path).relative_to("docs").as_posix() in re.findall(
        r": (\S+\.md)$", page("mkdocs.yml"), re.MULTILINE
    )
    for link in links(path):
        linked = ((ROOT / path).parent / link.partition("#")[0]).resolve()
        assert linked.is_relative_to(MANUAL), link


def test_the_commands_of_contributors_are_targets_of_the_makefile() -> None:
    named = re.findall(r"`make ([\w-]+)`", page("CONTRIBUTING.md"))
    targets = re.findall(r"^([\w-]+):.*## ", page("Makefile"), re.MULTILINE)
    assert set(named) == set(targets) - {"help", "clean"}


def documented() -> dict[str, list[str]]:
    """The paths that the pages of the API document, each with the members that it lists."""
    pages = "".join(page(f"docs/api/{path.name}") for path in MANUAL.glob("api/*.md"))
    parts = re.findall(r"^::: memwal_sql\.([\w.]+)\n((?: .*\n)*)", pages, re.MULTILINE)
    return {name: re.findall(r"^ +- (\w+)$", options, re.MULTILINE) for name, options in parts}


def test_the_api_has_every_public_name() -> None:
    own = ("aio.", "spark.")  # modules with pages of their own
    names = [path.rpartition(".")[2] for path in documented() if not path.startswith(own)]
    assert sorted([*names, "aio"]) == sorted(mw.__all__)


def test_the_api_documents_functions_instead_of_modules_of_their_names() -> None:
    for path in documented():
        folder = ROOT / "memwal_sql" / path.replace(".", "/")
        assert not folder.is_dir() and not folder.with_suffix(".py").exists(), path


def test_the_api_has_what_the_manual_calls() -> None:
    """Methods of the tables, writers and transactions of examples, and no others that are gone."""
    texts = [each_block.text for path in MANUAL_PAGES for each_block in blocks(path)]
    for pattern, name in (("table", "Table"), ("writer", "TableWriter"), ("tx", "Transaction")):
        members = documented()[name]
        assert all(hasattr(getattr(mw, name), member) for member in members)
        assert set(re.findall(rf"\b{pattern}\.([a-z]\w+)\(", "".join(texts))) <= set(members)


def test_every_error_has_a_remedy_on_the_page_of_troubleshooting() -> None:
    kinds = [getattr(mw, name) for name in mw.__all__]
    errors = {
        kind.__name__ for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)
    }
    assert errors - {"MemWalError"} <= set(re.findall(r"`(\w+)`", page("docs/troubleshooting.md")))


def test_the_start_page_has_the_first_example_of_the_readme() -> None:
    assert block("README.md", "python") == blocks("docs/index.md")[1]


def rows(path: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its rule."""
    lines = page(path).partition(heading)[2].partition("\n| ")[2].partition("\n\n")[0]
    table = [line.strip("| ").split("|") for line in lines.splitlines()]
    return [[cell.strip() for cell in row] for row in table if "---" not in row[0]]


def test_the_figures_of_the_start_page_are_those_of_the_benchmarks() -> None:
    measured = {row[0].split(" (")[0]: row[1:4] for row in rows("docs/benchmarks.md", "# Bench")}
    names, *figures = rows("docs/index.md", "## In numbers")
    for place, name in enumerate(names):
        assert [row[place + 1] for row in figures] == measured[name]
