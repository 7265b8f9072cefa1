"""What a table costs in an object store, by a price list that the user gives."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memwal_sql.arguments import is_number
from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import BASE_FOLDERS, MEM_WAL_FOLDER, RECORD_FOLDER
from memwal_sql.view.overview import Overview
from memwal_sql.view.texts import count_text, size_text, visible

_NAMES = ("currency", "gb_month", "get", "head", "list", "put", "copy", "delete")
_GB = 1 << 30
# Of Lance's names and branches too.
_FOLDERS = (*BASE_FOLDERS, "_refs", "tree", MEM_WAL_FOLDER, RECORD_FOLDER)


@dataclass(frozen=True, slots=True)
class Prices:
    """A price list.

    Attributes:
        gb_month: of 2**30 bytes that are stored for a month.
        requests: of 1,000 requests of each kind.
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
    """

    currency: str
    files: int
    bytes: int
    storage_month: float
    log_entries: int
    log: float

    def __str__(self) -> str:
        currency = visible(self.currency)
        return (
            f"stored {count_text(self.files, 'file')}, {size_text(self.bytes)}: "
            f"{self.storage_month:,.4f} {currency} a month\n"
            f"log {self.log_entries:,} entries so far, each a PUT: {self.log:,.4f} {currency}"
        )


def cost(store: ObjectStore, view: Overview, prices: Prices) -> Cost:
    """The cost of a table as `view` and its files show it; a listing of each folder."""
    listed = map_remote(store.remote, store.list, _FOLDERS)
    sizes = [meta.size for metas in listed for meta in metas]
    entries = sum(region.log_position for region in view.regions or ())
    return Cost(
        prices.currency,
        len(sizes),
        sum(sizes),
        prices.gb_month * sum(sizes) / _GB,
        entries,
        prices.of_requests({"put": entries}),
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
    if set(given) != {*_NAMES}:
        raise InvalidCallError(f"{name} must have {', '.join(_NAMES)}; it has {sorted(given)}")
    currency = given.pop("currency")
    if not isinstance(currency, str):
        raise InvalidCallError(f"{name}: currency = {currency!r} must be a text")
    for kind, price in given.items():
        if not is_number(price) or not 0 <= price < math.inf:
            raise InvalidCallError(f"{name}: {kind} = {price!r} must be a price, 0 or more")
    return Prices(currency, given.pop("gb_month"), given)
