"""Trying again: how often, and the pauses in between.

Pauses double, and each is drawn at random up to its bound ("full jitter"): committers that met once
do not meet again in step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import uniform
from typing import TypeVar

from exec_nodes.base.thresholds import Thresholds
from memwal_sql.errors import ConflictError, ContentionError
from memwal_sql.life_log import life_log
from memwal_sql.storage.deadlines import remaining

_log = life_log(__name__)

ATTEMPTS = 20

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]


class Pauses(Thresholds):
    """Bounds of the first pause and of any, in seconds."""

    first = 0.1
    longest = 1.0


def with_retries(
    call: Callable[[], T],
    name: str,
    *,
    on: Errors,
    unless: Errors = (),
    when: Callable[[BaseException], bool] = lambda _: True,
    attempts: int = ATTEMPTS,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The result of `call`, which is called again after errors of `on`, `unless` excepted, of which
    `when` is true.

    `name` tells the log what is tried. Raises the error of the last attempt, which is made before
    the caller's deadline.
    """
    attempt, pause = 1, Pauses.first
    while True:
        try:
            return call()
        except unless:
            raise
        except on as error:
            if attempt >= attempts or not when(error) or remaining() <= 0:
                raise
            reason = type(error).__name__
        _log.debug("%s: tried again after attempt %d, %s", name, attempt, reason)
        drawn = uniform(0, min(pause, Pauses.longest))  # noqa: S311 (of a pause)
        sleep(min(drawn, remaining()))
        attempt, pause = attempt + 1, 2 * pause


def over_conflicts(
    call: Callable[[], T],
    name: str,
    *,
    on: Errors = ConflictError,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The result of `call`, which is called again where another committer came first.

    Raises ContentionError, which begins with `name`, when others keep coming in between.
    """
    try:
        return with_retries(call, name, on=on, sleep=sleep)
    except on as error:
        raise ContentionError(
            f"{name}: other commits came in between {ATTEMPTS} times; try again"
        ) from error
