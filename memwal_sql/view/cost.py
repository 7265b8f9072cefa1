"""What a table costs in an object store, by a price list that the user gives."""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memwal_sql.arguments import is_number
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import BASE_FOLDERS, MEM_WAL_FOLDER, RECORD_FOLDER
from memwal_sql.storage.records.table import Records
from memwal_sql.view.overview import Overview
from memwal_sql.view.texts import count_text, size_text, visible

_NEEDED = ("currency", "gb_month")
_KINDS = ("get", "head", "list", "put", "copy", "delete")
_GB = 1 << 30
_DAY = 86400.0
# Less than a day's rate says nothing of a month: nights and loads are in it, or not.
_LEAST_DAYS = 1.0
_MONTH_DAYS = 365.25 / 12
# Of Lance's names and branches too.
_FOLDERS = (*BASE_FOLDERS, "_refs", "tree", MEM_WAL_FOLDER, RECORD_FOLDER)


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list.

    Attributes:
        gb_month: of 2**30 bytes that are stored for a month.
        requests: of 1,000 requests of each kind; 0 for one that the list leaves out.
    """

    currency: str
    gb_month: float
    requests: Mapping[str, float]

    def of_requests(self, counts: Mapping[str, float]) -> float:
        """Of so many requests of each kind."""
        return sum(self.requests[kind] * count for kind, count in counts.items()) / 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """What is stored of a table, replaced and old files too, and what its log has taken.

    Attributes:
        storage_month: the price of storing it for a month.
        log_entries: all entries of its logs so far, each of which was a PUT.
        log: their price.
        log_days: days since the table was made; None where its files do not say.
        log_month: the price of a month at the mean rate of these days; None for less than a day.
    """

    currency: str
    files: int
    bytes: int
    storage_month: float
    log_entries: int
    log: float
    log_days: float | None
    log_month: float | None

    def __str__(self) -> str:
        currency = visible(self.currency)
        since, a_month = " so far", ""
        if self.log_days is not None:
            since = f" in {self.log_days:,.1f} days"
            a_month = ", too short a time to tell a month"
            if self.log_month is not None:
                a_month = f", {self.log_month:,.4f} a month"
        return (
            f"stored {count_text(self.files, 'file')}, {size_text(self.bytes)}: "
            f"{self.storage_month:,.4f} {currency} a month\n"
            f"log {self.log_entries:,} entries{since}, each a PUT: "
            f"{self.log:,.4f} {currency}{a_month}"
        )


def cost(store: ObjectStore, view: Overview, prices: Prices) -> Cost:
    """The cost of a table as `view` and its files show it; a listing of each folder."""
    metas = [meta for metas in map_remote(store.remote, store.list, _FOLDERS) for meta in metas]
    sizes = [meta.size for meta in metas]
    entries = sum(region.log_position for region in view.regions or ())
    log = prices.of_requests({"put": entries})
    first_record = Records(store, "table").path(1)
    made = next((meta.modified for meta in metas if meta.path == first_record), None)
    # The store's clock may be ahead of this one.
    days = None if made is None or made >= time.time() else (time.time() - made) / _DAY
    return Cost(
        prices.currency,
        len(sizes),
        sum(sizes),
        prices.gb_month * sum(sizes) / _GB,
        entries,
        log,
        days,
        None if days is None or days < _LEAST_DAYS else log * _MONTH_DAYS / days,
    )


def read_prices(path: Path) -> Prices:
    """A price list in TOML, as docs/benchmarks.md shows it. Raises InvalidCallError."""
    name = f"the price list {str(path)!r}"
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidCallError(f"{name} can't be read: {error.strerror}") from None
    except ValueError as error:  # TOML's, and text that is not UTF-8
        raise InvalidCallError(f"{name} is not TOML: {error}") from None
    if not {*_NEEDED} <= set(given) <= {*_NEEDED, *_KINDS}:
        raise InvalidCallError(
            f"{name} must have {' and '.join(_NEEDED)}, and may have {', '.join(_KINDS)}; "
            f"it has {sorted(given)}"
        )
    currency = given.pop("currency")
    if not isinstance(currency, str):
        raise InvalidCallError(f"{name}: currency = {currency!r} must be a text")
    for kind, price in given.items():
        if not is_number(price) or not 0 <= price < math.inf:
            raise InvalidCallError(f"{name}: {kind} = {price!r} must be a price, 0 or more")
    return Prices(currency, given.pop("gb_month"), dict.fromkeys(_KINDS, 0) | given)
