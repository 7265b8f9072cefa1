"""What an operation of the driver returns to the jar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """An object of JSON without the key `error`, and parts in bytes."""

    json: Mapping[str, Any]
    parts: Sequence[bytes] = ()
