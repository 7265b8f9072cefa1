"""Tables of cases are tried to their end, and failures name their cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.each import each


def test_all_cases_are_tried_and_a_failure_names_its_case() -> None:
    tried = []

    @each("word, number", [("a", 1), ("b", 2), ("c", 1)])
    def table(fixture: str, word: str, number: int) -> None:
        tried.append(fixture + word)
        assert number == 2

    with pytest.raises(BaseExceptionGroup, match="2 of 3 cases") as failed:
        table(fixture="of ")
    assert tried == ["of a", "of b", "of c"]
    notes = [error.__notes__ for error in failed.value.exceptions]
    assert notes == [["case ('a', 1)"], ["case ('c', 1)"]]


def test_one_failure_is_raised_as_it_is() -> None:
    @each("number", [1, 2])
    def table(number: int) -> None:
        with pytest.raises(ValueError, match="1"):
            raise ValueError(number)

    with pytest.raises(AssertionError) as failed:
        table()
    assert failed.value.__notes__ == ["case 2"]


def test_each_case_has_its_own_folder_and_makes_its_own_table(tmp_path: Path) -> None:
    places = set()

    @each("number", [1, 2])
    @each("letter", "ab")
    def table(tmp_path: Path, uri: str, number: int, letter: str) -> None:
        assert tmp_path.is_dir() and not Path(uri).exists()
        Path(uri).mkdir()
        places.update([str(tmp_path), uri])

    table(tmp_path=tmp_path, uri=str(tmp_path / "new"))
    assert len(places) == 8
    shared = tmp_path / "made before"
    shared.mkdir()

    @each("number", [1, 2])
    def change(uri: str, number: int) -> None:
        assert uri == str(shared)

    change(uri=str(shared))
