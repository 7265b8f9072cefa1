"""The requests of an operation, from the proxy's log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from memwal_sql.view.cost import Prices

# What a request costs, in units of a GET, by the price lists of the large stores.
_COST = {"GET": 1, "HEAD": 1, "PUT": 12, "POST": 12, "LIST": 12, "DELETE": 0}
_PRICED = {"POST": "put"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the proxy saw it.

    Attributes:
        start, end: in seconds.
        kind: GET, HEAD, PUT, POST, DELETE or LIST.
        path: of the object, or of the folder that is listed.
        fault: the name of what went wrong with it, if anything did.
    """

    start: float
    end: float
    kind: str
    path: str
    fault: str = ""


class Log:
    """The proxy's log, read on from where it was read last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def take(self) -> list[Request]:
        """The requests that have been answered since the last call."""
        lines = self._path.read_text().splitlines()[self._read :]
        self._read += len(lines)
        return [_request(line) for line in lines]


def rounds(requests: Sequence[Request]) -> int:
    """How many requests were waited for one after the other: the most that do not overlap."""
    count, end = 0, 0.0
    for request in sorted(requests, key=lambda request: request.end):
        if request.start >= end:
            count, end = count + 1, request.end
    return count


def cost(requests: Sequence[Request]) -> int:
    """What they cost, in units of a GET."""
    return sum(_COST[request.kind] for request in requests)


def price(requests: Sequence[Request], prices: Prices) -> float:
    """What they cost by a price list."""
    counts = Counter(_PRICED.get(request.kind, request.kind.lower()) for request in requests)
    return prices.of_requests(counts)


def kinds(requests: Sequence[Request]) -> str:
    """How many there are of each kind, such as `3 GET, 1 PUT`."""
    counts = Counter(request.kind for request in requests)
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _request(line: str) -> Request:
    start, end, method, target, *fault = line.split(" ")
    parts = urlsplit(target)
    query = parse_qs(parts.query)
    listed = method == "GET" and "list-type" in query
    path = query.get("prefix", [""])[0] if listed else parts.path
    return Request(float(start), float(end), "LIST" if listed else method, path, *fault)
