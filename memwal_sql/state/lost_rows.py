"""How often rows that a buffered writer had shown were lost."""

from __future__ import annotations

from memwal_native import void_questions


class LostRows:
    """Counts the buffered writers of this process that failed with rows which readers may have
    seen, and which are not in the table."""

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Count one more; of two at once one may be missed, as only a change counts."""
        self.count += 1
        void_questions()


LOST = LostRows()
