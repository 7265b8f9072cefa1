"""The counters of `python -m benchmarks.size`."""

from benchmarks.size import lines_of_code, touched
from memwal_sql.write.conditional.recent import RecentWrites

SOURCE = '''"""What it is.

More of it.
"""

from os import (
    path,
)
import sys  # why


class A:
    """Its contract."""

    text = """
    two lines"""

    # Why.
    def call(self) -> None:  # two more
        """Ends."""
        print(
            path, sys
        )
'''


def test_lines_of_code_are_without_blanks_comments_docstrings_and_imports() -> None:
    assert lines_of_code(SOURCE) == 7


def test_what_a_call_touches_is_counted() -> None:
    found = touched(lambda: [RecentWrites(["id"]).open(1) for _ in range(2)])
    assert found == {"calls": 6, "functions": 3, "files": 1, "classes": 2}
