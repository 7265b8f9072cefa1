"""ARCHITECTURE and the pages of the design are true to the tree and to the tests."""

from __future__ import annotations

import re

from tests.docs.pages import MANUAL, ROOT, page
from tests.each import each

PAGES = ["ARCHITECTURE.md", *sorted(f"docs/design/{p.name}" for p in MANUAL.glob("design/*.md"))]
PACKAGES = ("exec_nodes", "planner", "memwal_sql", "native/src")
FOLDERS = ("", "memwal_sql", "exec_nodes", "planner")  # which paths are relative to
# Paths on disk of a table, and what others call theirs.
NO_PATHS = re.compile(r"[{}<>*() ]|^_|^https?:|^/")


def is_there(path: str) -> bool:
    """Whether a path names a file of the sources, without its ending or with it, or a folder."""
    return any(
        (ROOT / folder / f"{path.rstrip('/')}{ending}").exists()
        for folder in FOLDERS
        for ending in ("", ".py", ".rs")
    )


@each("path", PAGES)
def test_a_path_that_a_page_names_is_there(path: str) -> None:
    prose = re.sub(r"^```.*?^```$", "", page(path), flags=re.DOTALL | re.MULTILINE)
    named = [one for one in re.findall(r"`([^`\n]*/[^`\n]+)`", prose) if not NO_PATHS.search(one)]
    assert [one for one in named if not is_there(one)] == []


def rooms() -> set[str]:
    """The folders of the table of rooms, with those that stand in the text of a row."""
    found = set()
    for room, text in re.findall(r"^\| `([\w/]+)/` \| (.*) \|$", page("ARCHITECTURE.md"), re.M):
        found |= {room, *(f"{room}/{inner}" for inner in re.findall(r"`(\w+)/`", text))}
    return found


def test_every_folder_of_the_sources_is_a_room() -> None:
    folders = {
        str(file.parent.relative_to(ROOT))
        for package in PACKAGES
        for ending in ("py", "rs")
        for file in (ROOT / package).rglob(f"*.{ending}")
        if file.name != "__init__.py"
    }
    generated = {"memwal_sql/storage/proto_gen"}
    # The package itself, and folders that only hold others.
    parents = {str(parent) for one in rooms() for parent in (ROOT / one).relative_to(ROOT).parents}
    assert folders - generated - parents <= rooms()
    assert [room for room in sorted(rooms()) if not (ROOT / room).is_dir()] == []


def test_every_rule_has_a_line_and_a_test_that_names_it() -> None:
    lines = re.findall(r"^\| ([\d, ]+) \|", page("ARCHITECTURE.md"), re.M)
    rules = [int(number) for line in lines for number in line.split(",")]
    assert sorted(rules) == list(range(1, 25))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    named = {int(number) for number in re.findall(r"[Rr]ule (\d+)", tests)}
    assert set(rules) <= named
