"""What others do at the last moment: a statement has read and computed, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from memwal_sql.write import statement
from memwal_sql.write.back_pressure import MemoryBudget
from memwal_sql.write.commit import Lost, Share


def before_commits(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Make a call when a statement has computed its rows, before it keeps others from writing."""
    wait_for_room = MemoryBudget.wait_for_room

    def called(budget: MemoryBudget, size: int, relieve: Callable[[], None]) -> None:
        wait_for_room(budget, size, relieve)
        call()

    monkeypatch.setattr(MemoryBudget, "wait_for_room", called)


def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Share]]:
    """The rows of statements that are compared with those of others, as they are."""
    lost_keys, seen = statement.lost_keys, list[Sequence[Share]]()

    def noted(shares: Sequence[Share]) -> Lost:
        seen.append(shares)
        return lost_keys(shares)

    monkeypatch.setattr(statement, "lost_keys", noted)
    return seen


def after_commits(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Make a call when a statement has enqueued its rows."""
    enqueued = statement.enqueued

    def called(*given: object, **named: object) -> object:
        writes = enqueued(*given, **named)  # type: ignore[arg-type]
        call()
        return writes

    monkeypatch.setattr(statement, "enqueued", called)
