"""A table that is copied alone: what its copy says must be true of the table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.storage.objects.memory import memory_store
from tests.sim.cycles import Values
from tests.sim.process import REFUSED, Process
from tests.sim.schedule import Schedule

_HOMELESS = "as the table with its record"


@dataclass(frozen=True)
class Copy:
    """A copy of one table in memory. Where it `has_home`, the table with the records of its
    transactions is where it was from there."""

    uri: str
    has_home: bool

    def take(self, table: str) -> None:
        """Copy all files of a table as they are at this moment."""
        source, target = memory_store(table), memory_store(self.uri)
        for path, data in source._objects.items():
            target.put(path, data)
        with TemporaryDirectory() as folder:
            file = os.path.join(folder, "file")
            for path in source._lance.list():
                source._lance.download_file(path, file)
                target._lance.upload_file(file, path)

    def lists(self, name: str, schedule: Schedule, keys: Iterable[int]) -> dict[int, Values]:
        """What the copy has of lists, which a claim and a write there leave as it is."""
        process, keys = Process([self.uri], name, schedule), list(keys)
        first = _lists(process.table, keys)
        other = Process([self.uri], name, schedule)
        other.writer().upsert([{"id": 0, "op": 0, "log": ""}])
        second = _lists(other.table, keys)
        other.lose_writer()
        # Its home may have got the record of a transaction that was under way.
        found = second if not self.has_home else {k: second[k][: len(first[k])] for k in keys}
        assert found == first, f"{first} became {second}"
        return first

    def check(self, name: str, schedule: Schedule, lost: set[int]) -> None:
        """What is lost of what was acknowledged is named."""
        report = Process([self.uri], name, schedule).table.check()
        errors = [e.what for e in report.of(Severity.ERROR)]
        if self.has_home:
            assert not lost, f"{lost} are gone"
        if any(REFUSED in error for error in errors):
            return  # it says that it did not see all
        if self.has_home:
            assert not errors, str(report)
        else:
            homeless = [error for error in errors if _HOMELESS in error]
            assert errors == homeless and (homeless or not lost), f"{lost}: {report}"


def _lists(table: mw.Table, keys: list[int]) -> dict[int, Values]:
    rows = table.get(keys, ["id", "log"]).to_pylist()
    return {row["id"]: tuple(map(int, row["log"].split())) for row in rows}
