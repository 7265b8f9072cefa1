"""Records of transactions in a store, beside those who remove them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.records.transactions import Transactions
from tests.write.hooked_store import Call, HookedStore


def test_a_record_that_is_removed_meanwhile_needs_no_sync(tmp_path: Path) -> None:
    """As by a drop of its table: one that was not there needs none either."""
    asked = list[str]()

    def remove(operation: str, path: str, call: Call) -> Any:
        asked.append(operation)
        if operation == "sync":
            shutil.rmtree(tmp_path / "t")
        return call()

    Transactions(LocalStore(str(tmp_path / "t"))).abort("a", "by a claimant")
    records = Transactions(HookedStore(LocalStore(str(tmp_path / "t")), remove))
    records.sync("a")
    assert "sync" in asked
    records.sync("a")
    assert asked.count("sync") == 1
