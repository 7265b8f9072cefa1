"""What tests of live rows share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from memwal_sql.read.live.settings import Live
from tests.live.case import Case


@pytest.fixture
def case(uri: str) -> Iterator[Case]:
    with Live.set(enabled=1, least_rows=0, waited=1):
        case = Case(uri)
        yield case
        if case.writer is not None:
            case.writer.close()
