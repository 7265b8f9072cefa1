"""What the README shows has to work as shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only fenced block of that language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", block("python")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == block("text")


def test_the_example_is_short() -> None:
    assert len([line for line in block("python").splitlines() if line]) <= 20


@pytest.mark.parametrize("command", re.findall(r"make (\w+)", block("sh") + block("shell")))
def test_a_command_is_a_target_of_the_makefile(command: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{command}:", makefile, re.MULTILINE)


@pytest.mark.parametrize("folder", re.findall(r"^\| `(\w+)/` \|", README, re.MULTILINE))
def test_a_folder_of_the_map_is_there(folder: str) -> None:
    assert (ROOT / folder).is_dir()


def test_every_folder_of_the_repository_is_on_the_map() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*/*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    folders = {path.split("/")[0] for path in tracked.stdout.splitlines()}
    mapped = set(re.findall(r"^\| `(\w+)/` \|", README, re.MULTILINE))
    assert {folder for folder in folders if not folder.startswith(".")} <= mapped


@pytest.mark.parametrize("target", re.findall(r"\]\((?!https?:)([^)]+)\)", README))
def test_a_link_leads_to_a_file(target: str) -> None:
    assert (ROOT / target).exists()
