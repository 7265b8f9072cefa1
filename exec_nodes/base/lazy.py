"""Attributes that are computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801 (it is used as `property` is)
    """As `functools.cached_property`, but computed once for all threads.

    In Python 3.11 all instances of a class share the lock of that one: a query would wait for what
    another one computes. Later it has none.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        name, state = self._name, instance.__dict__
        lock = f"{name}, under way"
        with state.setdefault(lock, RLock()):
            if name not in state:
                state[name] = self._make(instance)
        # A new caller finds the value, and a waiting one has the lock; locks can't be pickled.
        state.pop(lock, None)
        value: T = state[name]
        return value
