"""Table handles over another store than the one that their URI names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.storage.objects.protocol import ObjectStore


def opened_over(uri: str, wrap: Callable[[ObjectStore], Any], **options: Any) -> mw.Table:
    """The table, by a handle whose store is what `wrap` makes of the usual one."""
    opened = create.open_store
    with patch.object(create, "open_store", lambda *a, **k: wrap(opened(*a, **k))):
        return mw.open_table(uri, **options)


class Remote:
    """A store that says that requests take long."""

    remote = True

    def __init__(self, inner: object) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
