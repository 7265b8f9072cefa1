"""Attributes that are computed once."""

from __future__ import annotations

import pickle
from threading import Barrier, Event, Thread

import pytest

from exec_nodes.base.lazy import lazy_property
from tests.model.racing import race
from tests.model.waiting import reached


class Sum:
    """Adds up slowly."""

    calls = 0

    def __init__(self, *parts: int, begun: Event | None = None, go: Event | None = None) -> None:
        self.parts = parts
        self._events = begun, go

    @lazy_property
    def total(self) -> int:
        """Of the parts."""
        self.calls += 1
        begun, go = self._events
        if begun is not None and go is not None:
            begun.set()
            reached(go)
        return sum(self.parts)


def test_it_is_computed_when_it_is_first_read() -> None:
    one = Sum(1, 2)
    assert one.calls == 0
    assert one.total == one.total == 3
    assert one.calls == 1
    assert Sum.total.__doc__ == "Of the parts."
    again = pickle.loads(pickle.dumps(one))
    assert again.total == 3 and again.calls == 1


def test_other_instances_do_not_wait() -> None:
    begun, go = Event(), Event()
    slow = Sum(1, begun=begun, go=go)
    waiting = Thread(target=lambda: slow.total)
    waiting.start()
    try:
        reached(begun)
        assert Sum(4).total == 4
    finally:
        go.set()
        waiting.join()
    assert slow.total == 1


def test_threads_compute_it_once() -> None:
    for _ in range(50):
        one, ready = Sum(5), Barrier(4)

        def read(one: Sum = one, ready: Barrier = ready) -> None:
            ready.wait()
            assert one.total == 5

        race(*[read] * 4)
        assert one.calls == 1


def test_after_an_error_the_next_reader_tries_again() -> None:
    one = Sum(1, "2")  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(TypeError):
            _ = one.total
    assert one.calls == 2
    one.parts = (1, 2)
    assert one.total == 3
