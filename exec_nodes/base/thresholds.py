"""Numbers by which the code chooses among ways to the same answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Thresholds:
    """The attributes of a subclass are thresholds of its subject: they decide how long an answer
    takes and how much memory, never what it is."""

    @classmethod
    @contextmanager
    def set(cls, **others: float) -> Iterator[None]:
        """Within the context others hold, for all threads: a small table goes the way of a large
        one. Raises AttributeError for a name that the subject doesn't have."""
        before = {name: getattr(cls, name) for name in others}
        for name, value in others.items():
            setattr(cls, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(cls, name, value)
