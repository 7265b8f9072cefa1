from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType

import pytest

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.resident.store import (
    ENTRY_BYTES,
    STORE,
    Key,
    ResidentStore,
    Scope,
    default_budget,
    memory_bytes,
)
from tests.model.racing import race


def key(owner: object, kind: str = "keys", detail: object = None) -> Key:
    return Key(kind, (owner,), detail)


def test_the_least_recently_used_artefact_goes_first() -> None:
    store = ResidentStore(max_bytes=4 * (ENTRY_BYTES + 25))
    for name in "abcd":
        store.put(key(name), name.upper(), 25)
    assert store.get(key("a")) == "A"
    store.put(key("e"), "E", 25)
    assert store.get(key("b")) is None
    assert store.get(key("a")) == "A"
    assert store.nbytes == store.max_bytes
    store.put(key("a"), "AA", 5)
    assert store.nbytes == store.max_bytes - 20


def test_the_kind_that_takes_most_makes_room() -> None:
    store = ResidentStore(max_bytes=5 * (ENTRY_BYTES + 20))
    for name in "ab":
        store.put(key(name), name, 20)
    for name in "cdefghij":
        store.put(key(name, "column"), name, 20)
        assert store.get(key("a")) == "a" and store.get(key("b")) == "b"
    assert store.nbytes == store.max_bytes


def test_what_is_too_large_is_handed_out_but_not_kept() -> None:
    store = ResidentStore(max_bytes=100)
    assert store.compute(key("x"), lambda: "X", lambda _: 26) == "X"
    assert store.get(key("x")) is None
    assert store.nbytes == 0


def test_a_smaller_budget_holds_at_once() -> None:
    store = ResidentStore(max_bytes=4 * (ENTRY_BYTES + 25))
    for name in "abcd":
        store.put(key(name), name, 25)
    store.max_bytes //= 2
    assert store.nbytes == store.max_bytes
    assert [one.owners for one in store.all_keys()] == [("c",), ("d",)]


def test_an_artefact_that_grows_makes_room_and_goes_where_it_is_too_large() -> None:
    store = ResidentStore(max_bytes=4 * (ENTRY_BYTES + 100))
    for name in "abcd":
        store.put(key(name), name, 100)
    assert store.resize(key("d"), 300)
    assert store.get(key("a")) is None
    assert store.nbytes == store.kinds()["keys"].bytes == 3 * ENTRY_BYTES + 500
    assert not store.resize(key("a"), 1)
    assert store.resize(key("d"), store.largest + 1)
    assert store.all_keys() == [key("b"), key("c")]
    assert store.nbytes == 2 * (ENTRY_BYTES + 100)


def test_whoever_has_the_memory_of_an_artefact_lets_it_go_when_it_is_evicted() -> None:
    ways: list[Callable[[ResidentStore], object]] = [
        lambda store: [store.put(key(name), name, 900) for name in "bc"],
        lambda store: store.put(key("a"), "other", 10),
        lambda store: store.resize(key("a"), store.largest + 1),
        lambda store: store.evict("a"),
        lambda store: store.evict_where("keys", lambda key: True),
        lambda store: setattr(store, "max_bytes", 100),
    ]
    for way in ways:
        store, gone = ResidentStore(max_bytes=4_000), list[object]()
        # It may ask the store, and evict others.
        store.put(key("a"), "a", 900, lambda: gone.append(store.kinds()))  # noqa: B023
        way(store)
        assert len(gone) == 1
    store.put(key("large"), "large", store.largest + 1, partial(gone.append, "large"))
    assert gone[1:] == ["large"]


def test_a_missing_artefact_is_made_once_and_an_error_is_not_kept() -> None:
    store, calls = ResidentStore(), []

    def make() -> str:
        calls.append(1)
        return "made"

    assert race(*[lambda: store.compute(key("k"), make, len)] * 6) == ["made"] * 6
    assert len(calls) == 1

    def fail() -> str:
        raise OSError("once")

    with pytest.raises(OSError, match="once"):
        store.compute(key("f"), fail, len)
    assert store.compute(key("f"), make, len) == "made"
    assert not store._computing


def test_what_was_made_of_a_source_is_evicted_with_it_and_with_what_it_is_a_part_of() -> None:
    gone, kept = ("base", "table", "1"), ("base", "table", "2")
    share = (gone, frozenset([1]))
    store = ResidentStore()
    for identity in (gone, kept, share):
        store.put(key(identity), "keys", 10)
        store.put(Key("stale rows", (identity, "newer")), "rows", 10)
    store.evict(gone)
    assert store.nbytes == 2 * (ENTRY_BYTES + 10)
    assert {one.owners[0] for one in store.all_keys()} == {kept}
    store.evict("newer")
    assert store.all_keys() == [key(kept)]
    store.evict(*range(1000), kept)
    assert not store._by_owner


def test_what_a_slow_query_keeps_of_a_source_that_is_gone_goes_with_the_next_one() -> None:
    store, gone, next_gone = ResidentStore(), ("base", "table", "3"), ("base", "table", "4")
    store.evict(gone)
    store.put(key(gone), "keys", 10)
    store.put(Key("stale rows", ((next_gone, "share"), "newer")), "rows", 10)
    store.put(Key("index partition", ("uri", "uuid"), 1), "partition", 10)
    store.evict(next_gone, "uuid")
    assert store.nbytes == 0


def test_artefacts_of_one_kind_are_evicted_by_what_they_are() -> None:
    store = ResidentStore()
    for number in range(4):
        store.put(key("table", "texts", number), number, 10)
    store.put(key("table"), "keys", 10)
    store.evict_where("texts", lambda one: one.detail in (1, 2))
    assert [one.detail for one in store.all_keys()] == [0, 3, None]


def test_handles_do_not_share_what_is_in_their_scopes() -> None:
    store = ResidentStore()
    one, other = Scope(store), Scope(store)
    store.put(one.key("commit", 3, "etag"), "of one", 10)
    assert store.get(other.key("commit", 3, "etag")) is None
    assert one.is_own(store.all_keys()[0]) and not other.is_own(store.all_keys()[0])
    store.evict("etag")
    assert not store.all_keys()


def test_a_kind_tells_how_much_it_takes_and_how_often_that_was_of_use() -> None:
    store = ResidentStore()
    store.compute(key("a"), lambda: "A", lambda _: 7)
    store.compute(key("a"), lambda: "A", lambda _: 7)
    use = store.kinds()["keys"]
    assert (use.entries, use.bytes, use.hits, use.misses) == (1, ENTRY_BYTES + 7, 1, 2)
    store.evict("a")
    assert (store.kinds()["keys"].entries, store.kinds()["keys"].bytes) == (0, 0)


def test_work_pays_when_what_it_would_have_saved_reaches_its_cost() -> None:
    store = ResidentStore()
    assert [store.pays(key("a"), 4, 10) for _ in range(6)] == [False, False, True] * 2
    assert [store.pays(key(name), 5, 10) for name in "abab"] == [False, False, True, True]
    assert store.pays(key("c"), 5, 0)


def test_accounts_of_long_ago_are_closed() -> None:
    store = ResidentStore()
    for number in range(5000):
        store.pays(key(number), 1, 2)
    assert len(store._accounts) == 4096
    assert not store.pays(key(0), 1, 2) and store.pays(key(4999), 1, 2)


def test_budgets_are_written_as_people_do() -> None:
    budgets = {0: 0, 1000: 1000, "1000": 1000, "2KiB": 2048, " 1.5 GiB ": 3 << 29, "1tib": 1 << 40}
    assert {text: memory_bytes(text) for text in budgets} == budgets
    for text in ("", "much", "-1", -1, True, "1GB", "1 G", 1.5, None):
        with pytest.raises(InvalidCallError, match="memory must be"):
            memory_bytes(text)  # type: ignore[arg-type]


def test_the_environment_sets_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMWAL_MEMORY", raising=False)
    assert 256 << 20 <= default_budget() <= 4 << 30
    monkeypatch.setenv("MEMWAL_MEMORY", "5MiB")
    assert ResidentStore().max_bytes == 5 << 20


def test_nothing_is_kept_without_a_budget() -> None:
    store = ResidentStore(0)
    store.put(key("a"), "flags", 0)
    assert not store.all_keys()
    store.max_bytes = ENTRY_BYTES
    store.put(key("a"), "flags", 0)
    assert store.all_keys()
    store.max_bytes = 0
    assert not store.all_keys()


def test_what_nobody_asked_for_since_it_was_made_is_not_in_use() -> None:
    store = ResidentStore()
    for name in "ab":
        store.put(key(name), name, 1)
    store.get(key("b"))
    assert store.used("keys") == [key("b")]
    assert [store.take_use(key(one)) for one in ("b", "b", "a", "c")] == [True, False, False, False]
    store.put(key("b"), "anew", 1)
    assert not store.take_use(key("b"))


# Lance warns of every fork of a process that has used it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_child_has_an_empty_store_whatever_its_parent_was_doing() -> None:
    STORE.put(key("parent"), "of the parent", 10)
    with STORE._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if STORE.get(key("parent")) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert STORE.get(key("parent")) == "of the parent"
    STORE.evict("parent")


class _InterruptError(BaseException):
    """What a signal handler raises."""


def _interrupted(call: Callable[[], object], step: int) -> bool:
    """Make a call that is interrupted at a step, where a function begins or has returned, as
    signals are handled there; whether it got as far."""
    seen = 0

    def strike(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_return")
        if seen == step:
            sys.setprofile(None)
            raise _InterruptError

    before = sys.getprofile()
    sys.setprofile(strike)
    try:
        call()
    except _InterruptError:
        return True
    finally:
        sys.setprofile(before)
    return False


def test_an_interrupt_at_any_step_leaves_a_store_that_goes_on() -> None:
    """After one, an eviction raised KeyError for ever, and the bytes were wrong."""
    first, second = (Key("kind", (("table", name),), name) for name in "ab")
    calls: Mapping[str, Callable[[ResidentStore], object]] = {
        "put": lambda store: store.put(second, "two", 50),
        "put in place": lambda store: store.put(first, "two", 50),
        "put that evicts": lambda store: store.put(second, "two", 9_000),
        "resize": lambda store: store.resize(first, 9_000),
        "evict": lambda store: store.evict(("table", "a")),
        "evict_where": lambda store: store.evict_where("kind", lambda key: True),
    }
    for name, call in calls.items():
        step = 0
        while True:
            step += 1
            store = ResidentStore(40_000)
            for number in range(3):
                store.put(Key("kind", (("table", "a"), number)), number, 9_000)
            store.put(first, "one", 100)
            if not _interrupted(partial(call, store), step):
                break
            entries = [entry for kind in store._kinds.values() for entry in kind.entries.values()]
            total = sum(entry.nbytes for entry in entries)
            assert store.nbytes == total, (name, step)
            assert sum(use.bytes for use in store.kinds().values()) == total, (name, step)
            assert sum(use.entries for use in store.kinds().values()) == len(entries)
            store.evict("table", ("table", "a"), ("table", "b"))
            assert store.all_keys() == [] and store.nbytes == 0, (name, step)
        assert step > 5, name
