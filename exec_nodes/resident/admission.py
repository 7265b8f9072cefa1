"""Thresholds for reading into memory."""

from __future__ import annotations

from exec_nodes.base.thresholds import Thresholds

_MIB = 1024 * 1024


class Admission(Thresholds):
    """All but `evaluated` and `taken` are in bytes.

    The number of bytes whose reading a resident artefact would have saved a query
    (`ResidentStore.pays`): a `lookup` of a key takes 0.25 ms less than by btree, and reading and
    sorting a key of 16 bytes 10 to 80 ns (1,000,000 rows, 2 cores); a `fetch` of ten rows takes as
    long as a megabyte in one go; a `search` of vectors by index as long as a few.

    The part that a version has more than a resident one is read `inline`, by the first query that
    needs it, up to this size. Columns of a source that are as `small` are read whole: the fixed
    cost of a Lance scan outweighs it. Conditions over so many rows are `evaluated` in memory in no
    more time than Lance takes to look into an index (some 4 ms). To take a row by its address costs
    as much as to scan `taken` rows.
    """

    lookup = 10_000 * 16
    fetch = _MIB
    search = 4 * _MIB
    inline = 8 * _MIB
    small = 4 * _MIB
    evaluated = 2_000_000
    taken = 16
