"""Child process: one merge, of a table of ours or by plain Lance in one commit."""

from __future__ import annotations

import sys

import lance

import memwal_sql as mw
from benchmarks.support.child import ready
from benchmarks.support.timing import seconds


def main(kind: str, uri: str, rows: str) -> None:
    """Print the seconds of the merge, and the row count and sum of ids afterwards.

    `rows` is the Lance dataset of the newest rows, for the kinds `scan` and `index`: whether the
    merge looks for keys by scanning them or by their btree.
    """
    ready()
    table = mw.open_table(uri) if kind == "ours" else None

    def merge() -> object:
        if table is not None:
            return table.merge()
        insert = lance.dataset(uri).merge_insert("id").use_index(kind == "index")
        insert = insert.when_matched_update_all().when_not_matched_insert_all()
        return insert.execute(lance.dataset(rows).to_table())

    taken = seconds(merge)
    ids = lance.dataset(uri).to_table(columns=["id"])["id"]
    print(taken, len(ids), sum(chunk.to_numpy().sum() for chunk in ids.chunks))


if __name__ == "__main__":
    main(*sys.argv[1:])
