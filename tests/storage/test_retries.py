"""Trying again: how often, after which errors, and with which pauses."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from memwal_sql.errors import ConflictError, InvalidCallError, MaintenanceLostError, RetryError
from memwal_sql.storage.retries import ATTEMPTS, Pauses, over_conflicts, with_retries


def failing(*errors: Exception) -> Callable[[], str]:
    """A call that raises each of the errors, then succeeds."""
    left = iter(errors)

    def call() -> str:
        for error in left:
            raise error
        return "done"

    return call


def pauses_of(seed: int, conflicts: int = ATTEMPTS - 1) -> list[float]:
    pauses: list[float] = []
    random.seed(seed)
    call = failing(*(ConflictError(str(n)) for n in range(conflicts)))
    with Pauses.set(first=0.1, longest=1.0):
        assert over_conflicts(call, "a job", sleep=pauses.append) == "done"
    return pauses


def test_what_succeeds_at_once_does_not_pause() -> None:
    assert pauses_of(0, conflicts=0) == []


def test_pauses_are_drawn_up_to_bounds_that_double_to_a_second() -> None:
    drawn = [pauses_of(seed) for seed in range(200)]
    for attempt, pauses in enumerate(zip(*drawn, strict=True)):
        bound = min(1.0, 0.1 * 2**attempt)
        assert 0 <= min(pauses) < 0.1 * bound
        assert 0.9 * bound < max(pauses) <= bound
    assert drawn[0] != drawn[1]


def test_the_last_conflict_is_an_error_that_names_the_job_and_the_number_of_attempts() -> None:
    call = failing(*(ConflictError(str(n)) for n in range(ATTEMPTS)))
    with pytest.raises(RetryError, match=f"^a job: .* {ATTEMPTS} times; try again") as raised:
        over_conflicts(call, "a job", sleep=lambda _: None)
    # A job that is part of another one has been tried often enough.
    assert not isinstance(raised.value, ConflictError)
    assert str(raised.value.__cause__) == str(ATTEMPTS - 1)


@pytest.mark.parametrize("error", [RetryError("a"), MaintenanceLostError("b"), KeyboardInterrupt()])
def test_other_errors_are_not_tried_again(error: BaseException) -> None:
    def call() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        over_conflicts(call, "a job", sleep=_never)
    assert raised.value is error


def test_the_last_error_is_raised_where_attempts_are_given() -> None:
    errors = [OSError(0), OSError(1), OSError(2)]
    with pytest.raises(OSError, match="2"):
        with_retries(failing(*errors), "a", on=OSError, attempts=3, sleep=lambda _: None)


def test_an_error_may_be_left_out() -> None:
    call = failing(RetryError("again"), InvalidCallError("not again"))
    with pytest.raises(InvalidCallError, match="not again"):
        with_retries(call, "a", on=Exception, unless=InvalidCallError, sleep=lambda _: None)


def _never(seconds: float) -> None:
    raise AssertionError("a pause")
