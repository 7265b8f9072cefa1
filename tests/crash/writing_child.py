"""The doomed writer: it writes, says what was acknowledged, and kills itself where it is told."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import lance

from tests.crash.doomed import SURVIVED, Death, open_doomed
from tests.crash.script import writes

LANCE_CALLS = (
    (lance, "write_dataset"),
    (lance.LanceDataset, "create_scalar_index"),
    (lance.LanceDataset, "commit"),
    (lance, "dataset"),
)


def write_until_death(
    uri: str, seed: int, count: int, options: dict[str, Any], death: Death, link: Connection
) -> None:
    """Write `count` writes; after each acknowledgement its number goes through `link`."""
    table = open_doomed(uri, death, LANCE_CALLS)
    writer = table.writer(**options)
    for write in writes(seed, count):
        if write.kind == "flush":
            writer.flush()
        else:
            (writer.upsert if write.kind == "upsert" else writer.delete)(write.rows())
        link.send(write.op)
    writer.close()
    link.send(SURVIVED)
