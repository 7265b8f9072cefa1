"""When rows are kept live, and how much of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from exec_nodes.base.thresholds import Thresholds
from memwal_native import void_questions
from memwal_sql.errors import InvalidCallError

_ENVIRONMENT = "MEMWAL_LIVE_ROWS"
_TEXTS: dict[str, bool | str] = {
    "true": True,
    "1": True,
    "on": True,
    "false": False,
    "0": False,
    "off": False,
    "check": "check",
}

_MIB = 1024 * 1024


class Live(Thresholds):
    """When rows are kept live, and how much of them.

    Attributes:
        enabled: whether they are at all, 1 or 0.
        checked: whether each query is answered by both paths and compared, 1 or 0.
        waited: whether the query that asks first waits for them, and pays for them, 1 or 0.
        least_rows: smaller tables are quick anyway.
        looked: lookups look at all regions now and then, where there are at most so many: native
            code then looks at all of them in the time that Python takes for one.
        regions: a table with more has none, as it would take a look at all of them.
        reads: they are made once queries that could have used them have read so many times their
            bytes: a process with one query pays nothing.
        budget: the share of the memory budget that the rows of one table may take; other tables,
            searches and lookups need theirs.
        key_bytes: what the index takes for a row: a key of 8 bytes and its place.
        longest: columns of more bytes a value on average are not kept: they cost much and take
            part in few conditions.
        missing: if a larger share of the rows has changed, all are read again: one row by its key
            takes several times as long as one that is read among all.
        few: as many changed rows are always taken in: that takes some ten milliseconds.
        versions: if there are more new base versions, all rows are read again: one more file is
            read for each, 5 ms on a disk and a round trip on a store, while the query waits.
        earlier: so many base versions that were taken in before the newest are known again, as
            queries may still be served them.
        log: so many bytes of rows, or `log_share` of what is kept if that is more, may wait until
            a query asks for their columns. Less would change columns that nobody reads.
    """

    enabled = 1
    checked = 0
    waited = 0
    least_rows = 10_000
    looked = 64
    regions = 1_000
    reads = 2.0
    budget = 0.5
    key_bytes = 16
    longest = 256
    missing = 0.25
    few = 65_536
    versions = 32
    earlier = 8
    log = 16 * _MIB
    log_share = 0.125

    @classmethod
    @contextmanager
    def set(cls, **others: float) -> Iterator[None]:
        """As `Thresholds.set`; every query looks again first, here and afterwards."""
        with super().set(**others):
            void_questions()
            yield
        void_questions()


def check_live_rows(value: object) -> None:
    """Raise InvalidCallError unless a value says whether rows are kept live."""
    if value is not True and value is not False and value != "check":
        raise InvalidCallError(f'live_rows must be True, False or "check", not {value!r}')


class LiveRows:
    """Whether this process keeps rows live, as `configure` or else the environment says."""

    def __init__(self) -> None:
        self._is_configured = False

    @property
    def are_on(self) -> bool:
        """Whether it does. Raises InvalidCallError for an environment that can't be meant."""
        if not self._is_configured:
            named = os.environ.get(_ENVIRONMENT)
            if named:
                value = _TEXTS.get(named.lower())
                if value is None:
                    raise InvalidCallError(
                        f"the environment's {_ENVIRONMENT} must be true, false or check, not "
                        f"{named!r}"
                    )
                self.set(value)
            self._is_configured = True
        return bool(Live.enabled)

    def set(self, value: bool | str) -> None:
        """Keep rows live from now on (True), compare them with those of the general path ("check"),
        or do neither (False). Raises InvalidCallError for any other value."""
        check_live_rows(value)
        Live.enabled, Live.checked = int(bool(value)), int(value == "check")
        self._is_configured = True
        void_questions()


LIVE_ROWS = LiveRows()
