"""Other clients let go of their tables when a test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.interop import lancedb_client, native


@pytest.fixture(autouse=True)
def closed_writers() -> Iterator[None]:
    """Their writers look for work every millisecond, for as long as the process lives."""
    yield
    for known in (native.OPEN, lancedb_client.OPEN):
        while known:
            with suppress(Exception):  # fenced, or its table is gone
                known.pop().close()
