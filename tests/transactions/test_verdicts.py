"""Which intents count."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from threading import Event
from typing import Any
from uuid import uuid4

from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.records.intent import Intent, is_relative, place_from, relative_place
from memwal_sql.storage.records.table import write_record
from memwal_sql.storage.records.transactions import Part, Transactions
from memwal_sql.storage.records.verdicts import Verdicts
from tests.write.hooked_store import Call, HookedStore


def test_an_intent_counts_by_its_id_and_its_place() -> None:
    """An id may be used again once its record was collected: nothing that was known of it counts
    for an intent at another position."""
    store, incarnation, region = MemoryStore("memory://verdicts"), uuid4(), uuid4()
    records, intent = Transactions(store), Intent("again", "", incarnation)
    verdicts = Verdicts(incarnation, lambda _: store)
    assert verdicts.verdict(region, intent, 4) is None
    verdicts.settle(region, intent, 4, "a claim")
    assert verdicts.verdict(region, intent, 4) is False
    records.delete(["again"])
    record = records.commit("again", [Part("", incarnation, region, 9, 1)])
    assert record.committed
    cases = {(region, 9): True, (region, 4): False, (region, 8): False, (uuid4(), 9): False}
    for reader in (verdicts, Verdicts(incarnation, lambda _: store)):
        for (place, position), counts in cases.items():
            assert reader.verdict(place, intent, position) is counts


def test_that_there_is_no_record_is_no_answer_for_who_asks_later(within: Any) -> None:
    """The record may have been put since: the reader of a later query must see it."""
    incarnation, region = uuid4(), uuid4()
    store = HookedStore(MemoryStore("memory://asked"))
    intent, verdicts = Intent("x", "", incarnation), Verdicts(incarnation, lambda _: store)
    asked, put = Event(), Event()

    def late(operation: str, path: str, call: Call) -> Any:
        try:
            return call()
        finally:
            asked.set()
            put.wait(30)

    store.hook = late
    pool: Executor = within(ThreadPoolExecutor(3))
    early = pool.submit(verdicts.verdict, region, intent, 4)
    assert asked.wait(30)
    later = [pool.submit(verdicts.verdict, region, intent, 4) for _ in range(2)]
    Transactions(store.inner).commit("x", [Part("", incarnation, region, 4, 1)])
    put.set()
    assert early.result(30) is None
    assert [answer.result(30) for answer in later] == [True, True]


def test_an_intent_whose_home_is_gone_does_not_count_unless_somebody_says_so() -> None:
    """Its log, any other log of the table, or a record that the home has left to the table."""
    home, incarnation, region = MemoryStore("memory://home"), uuid4(), uuid4()
    write_record(home, incarnation)
    here = Intent("x", "../home", incarnation)
    gone = Intent("x", "../home", uuid4())
    own, nowhere, table = MemoryStore("memory://own"), MemoryStore("memory://nowhere"), uuid4()

    def asked(intent: Intent, *, elsewhere: bool = False, noted: bool | None = None) -> bool | None:
        homes = {"": own, "../home": home if intent is not nothing else nowhere}
        verdicts = Verdicts(table, homes.__getitem__, lambda _: elsewhere)
        return verdicts.verdict(region, intent, 1, lambda: noted)

    nothing = Intent("x", "../home", incarnation, "ab")
    assert asked(here) is None
    for said in (True, False):
        assert asked(here, noted=said) is said
    for intent in (gone, nothing):
        assert asked(intent) is False
        assert asked(intent, elsewhere=True) is True
        for said in (True, False):
            assert asked(intent, noted=said, elsewhere=True) is said
    Transactions(home).commit("x", [Part("", table, region, 1, 1)])
    Transactions(home).hand_over("x", incarnation, Transactions(own))
    assert asked(nothing) is True
    assert asked(here) is True


def test_places_of_other_tables() -> None:
    for uri, other, place in (
        ("/data/bank/a", "/data/bank/a", ""),
        ("/data/bank/a", "/data/bank/b", "../b"),
        ("/data/bank/a", "/data/shop/b", "../../shop/b"),
        ("/data/bank/a", "/b", None),
        ("s3://bucket/a", "s3://bucket/b", "../b"),
        ("s3://bucket/a", "s3://other/b", None),
        ("memory://a", "memory://b", None),
        ("/a", "s3://bucket/b", None),
    ):
        assert relative_place(uri, other) == place
        if place is not None:
            assert place_from(uri, place) == other
    for place in ("..", "../..", "a", "/a", "../../../a", "../a/../b", "../a/b/c", "../", None, 1):
        assert not is_relative(place)
