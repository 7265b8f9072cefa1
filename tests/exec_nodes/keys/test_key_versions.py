"""The native map of keys' versions, asked while rows are added."""

from __future__ import annotations

import sys
import threading
import time

import pyarrow as pa

from memwal_native import KeyVersions

ROUNDS, KEYS = 100, 100_000


def test_waiting_for_an_append_lets_other_threads_run() -> None:
    """No thread is made to switch, so another one counts between two lines only if what stands
    between them lets the interpreter go."""
    versions, keys = KeyVersions(), pa.array(range(KEYS))
    done, counted, waited = threading.Event(), 0, 0

    def append() -> None:
        for _ in range(ROUNDS):
            versions.append(keys)
            if done.is_set():
                break
        done.set()

    def count() -> None:
        nonlocal counted
        while not done.is_set():
            counted += 1
            time.sleep(0)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    threads = [threading.Thread(target=append), threading.Thread(target=count)]
    try:
        for thread in threads:
            thread.start()
        while not done.is_set() and not waited:
            before = counted
            last = versions.last(7, sys.maxsize)
            waited = counted - before
            assert last == -1 or last % KEYS == 7
            time.sleep(0)
    finally:
        done.set()
        sys.setswitchinterval(interval)
        for thread in threads:
            thread.join()
    assert waited
