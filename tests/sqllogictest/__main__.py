"""`python -m tests.sqllogictest [file ...]`: compare files, or all of them, and print counts."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.sqllogictest import files
from tests.sqllogictest.compare import compared
from tests.sqllogictest.differences import expected
from tests.sqllogictest.test_files import SEED


def main(chosen: list[str]) -> int:
    """Return 1 if a record differs that has no reason."""
    counts: Counter[str] = Counter()
    shadowed, left, failed = 0, Counter[str](), False
    with tempfile.TemporaryDirectory() as temporary:
        crate = files.unpack(Path(temporary))
        names = chosen or files.names(crate)
        for name in names:
            found = compared(crate, name, Path(temporary) / "tables" / name, SEED)
            counts += found.counts
            shadowed += found.shadowed
            left.update(reason.partition(":")[2] for reason in found.left.values())
            if found.different.keys() != expected(name):
                failed = True
                print(name, found.told(expected(name)))
    print(f"{len(names)} files, seed {SEED}; {shadowed} tables of ours")
    for kind, count in counts.most_common():
        print(f"{count:7,} {kind}")
    for reason, count in left.most_common():
        print(f"{count:7,} tables that can't be ours: {reason}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
