from __future__ import annotations

import pytest

from exec_nodes.base.cache import ByteCache, forget
from tests.model.racing import race


def test_the_least_recently_used_entry_goes_first() -> None:
    cache = ByteCache(max_bytes=100)
    for name in "abcd":
        cache.put(name, name.upper(), 25)
    assert cache.get("a") == "A"
    cache.put("e", "E", 25)
    assert cache.get("b") is None
    assert cache.get("a") == "A"
    assert cache.nbytes == 100
    cache.put("a", "AA", 5)
    assert cache.nbytes == 80


def test_what_is_too_large_is_handed_out_but_not_kept() -> None:
    cache = ByteCache(max_bytes=100)
    assert cache.compute("x", lambda: "X", lambda _: 26) == "X"
    assert cache.get("x") is None
    assert cache.nbytes == 0


def test_a_missing_entry_is_computed_once_and_an_error_is_not_kept() -> None:
    cache, calls = ByteCache(), []

    def make() -> str:
        calls.append(1)
        return "made"

    assert race(*[lambda: cache.compute("k", make, len)] * 6) == ["made"] * 6
    assert len(calls) == 1

    def fail() -> str:
        raise OSError("once")

    with pytest.raises(OSError, match="once"):
        cache.compute("f", fail, len)
    assert cache.compute("f", make, len) == "made"


def test_what_is_kept_of_a_source_is_let_go_of_in_every_cache() -> None:
    gone, kept = ("base", "table", "1"), ("base", "table", "2")
    share = (gone, frozenset([1]))
    caches = [ByteCache(), ByteCache()]
    for cache in caches:
        for identity in (gone, kept, share):
            cache.put((identity, "keys"), "keys", 10)
            cache.put(("stale in base by", identity, "newer"), "rows", 10)
        cache.put("no tuple", "value", 10)
    forget(gone)
    for cache in caches:
        assert cache.nbytes == 30
        assert cache.get((kept, "keys")) == "keys" and cache.get("no tuple") == "value"
        assert cache.get((gone, "keys")) is None and cache.get((share, "keys")) is None


def test_what_a_slow_query_keeps_of_a_source_that_is_gone_goes_with_the_next_one() -> None:
    cache, gone, next_gone = ByteCache(), ("base", "table", "3"), ("base", "table", "4")
    forget(gone)
    cache.put((gone, "keys"), "keys", 10)
    cache.put(("stale in base by", (next_gone, "share"), "newer"), "rows", 10)
    cache.put(("segment", "uuid"), "partition", 10)
    forget(next_gone, "uuid")
    assert cache.nbytes == 0


def test_nothing_is_left_of_a_key_that_was_computed() -> None:
    cache = ByteCache(max_bytes=0)
    for number in range(3):
        assert cache.compute((number, "keys"), lambda: "too large", len) == "too large"
    assert not cache._computing


def test_entries_of_one_subject_are_let_go_of_together_whatever_was_dropped_before() -> None:
    cache = ByteCache(max_bytes=100)
    for number in range(30):
        cache.put(("table", "segment", 0, "postings", f"word{number}"), number, 10)
    cache.put(("table", "segment", 0, "postings", "word29"), "anew", 20)
    assert cache.nbytes == 100
    cache.put(("table", "another", 0, "postings", "word1"), 1, 10)
    forget("segment")
    assert cache.nbytes == 10
    cache.drop(lambda subject: subject[:2] == ("table", "another"))
    assert cache.nbytes == 0 and not cache._by_subject
