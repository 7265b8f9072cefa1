"""Who won a put-if-absent, where a store changes its mind between attempts."""

from __future__ import annotations

import pytest

from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnsupportedError,
)
from memwal_sql.storage.objects.create_once import ATTEMPTS, settle_put
from memwal_sql.storage.objects.memory import MemoryStore
from tests.each import each
from tests.model.faults import Fault, FaultyStore, Kind

REFUSALS = [StoreUnavailableError, InvalidCallError, UnsupportedError]


class Moody(MemoryStore):
    """Answers puts and gets with the errors given, in order; the last one again and again."""

    def __init__(self, puts: list[MemWalError], gets: list[MemWalError]) -> None:
        super().__init__("memory://moody")
        self._puts, self._gets = iter(puts), iter(gets)
        self._put: MemWalError = puts[0]
        self._get: MemWalError = gets[0]
        self.asked = 0

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.asked += 1
        self._put = next(self._puts, self._put)
        raise self._put

    def get(self, path: str) -> bytes:
        self._get = next(self._gets, self._get)
        raise self._get


@pytest.mark.slow
@each("refusal", REFUSALS)
@each("reading", REFUSALS)
def test_a_refusal_after_a_put_that_may_have_landed_leaves_the_outcome_open(
    refusal: type[MemWalError], reading: type[MemWalError]
) -> None:
    store = Moody([OutcomeUnknownError("lost"), refusal("put")], [reading("get")])
    with pytest.raises(OutcomeUnknownError, match="could not find out") as raised:
        settle_put(store, "a", b"x")
    assert isinstance(raised.value.__cause__, reading)
    assert store.asked == ATTEMPTS


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_first_refusal_is_told_as_it_is(refusal: type[MemWalError]) -> None:
    store = Moody([refusal("put")], [StoreUnavailableError("get")])
    with pytest.raises(refusal, match="put"):
        settle_put(store, "a", b"x")
    assert store.asked == 1


@pytest.mark.parametrize(
    "kind", [Kind.LOST_REPLY, Kind.LANDED_EXISTS, Kind.TIMEOUT, Kind.FALSE_EXISTS, Kind.REFUSED]
)
@pytest.mark.parametrize("taken", [False, True])
def test_what_the_store_did_not_say_is_settled(kind: Kind, taken: bool, no_pauses: None) -> None:
    """Protocol rules 3 and 5: my nonce is there, or somebody else's, or nothing."""
    store = MemoryStore("memory://settled")
    if taken:
        store.put("a", b"theirs")
    faulty = FaultyStore(store, [Fault("put_if_absent", kind)])
    if kind is Kind.REFUSED:
        with pytest.raises(StoreUnavailableError):
            settle_put(faulty, "a", b"mine")
        assert store.exists("a") is taken
    else:
        assert settle_put(faulty, "a", b"mine") == (b"theirs" if taken else None)
        assert store.get("a") == (b"theirs" if taken else b"mine")
    faulty.check()


def test_a_refusal_after_an_answer_that_was_lost_is_not_taken_for_the_whole_answer() -> None:
    """The first attempt may have landed."""
    faults = [("put_if_absent", Kind.LOST_REPLY), ("get", Kind.REFUSED)]
    faults += [("put_if_absent", Kind.REFUSED)]
    store = FaultyStore(MemoryStore("memory://refused"), [Fault(*one) for one in faults])
    assert settle_put(store, "a", b"mine", sleep=lambda _: None) is None
    store.check()
