"""An exception of a signal handler at every place where one can come, in what waits for threads."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from exec_nodes.base import threads, transient_threads
from exec_nodes.base.transient_threads import TransientThreads
from memwal_sql.storage.objects import concurrent
from memwal_sql.storage.objects.concurrent import SharedCall
from tests.model.interrupts import Interrupt, interrupted

MODULES = (threads, transient_threads, concurrent)


def test_an_interrupt_anywhere_leaves_nobody_waiting() -> None:
    step, ended = 1, False
    while not ended:
        made = list[int]()
        pool, shared = TransientThreads(1, "transient"), SharedCall(lambda: 7)
        with suppress(Interrupt), interrupted(MODULES, step):
            pool.submit(partial(made.append, 1))
            assert shared() == 7
            pool.shutdown()
            ended = True
        pool.submit(partial(made.append, 2))
        pool.shutdown()
        assert made in ([1, 2], [2]), step
        assert shared() == 7
        step += 1
    assert step > 50
