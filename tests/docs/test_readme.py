"""What the README shows has to work as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, block, page
from tests.each import each

README = page("README.md")
MAP = re.findall(r"^\| (`\w+/`(?:, `\w+/`)*) \|", README, re.MULTILINE)
FOLDERS = [folder for row in MAP for folder in re.findall(r"`(\w+)/`", row)]
LONGEST = {"README.md": 140, "ARCHITECTURE.md": 250}


@each("path, lines", LONGEST.items())
def test_the_first_pages_stay_short(path: str, lines: int) -> None:
    assert len(page(path).splitlines()) <= lines


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    example = block("README.md", "python")
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == example.output


def test_the_example_is_short() -> None:
    lines = block("README.md", "python").text.splitlines()
    assert len([line for line in lines if line]) <= 20


@each("folder", FOLDERS)
def test_a_folder_of_the_map_is_there(folder: str) -> None:
    assert (ROOT / folder).is_dir()


def test_every_folder_of_the_repository_is_on_the_map() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*/*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders = {path.split("/")[0] for path in tracked.stdout.splitlines()}
    assert {folder for folder in folders if not folder.startswith(".")} <= set(FOLDERS)
