"""What the plan of a query reads: names, views and queries of a WITH are resolved in it."""

from collections.abc import Iterator
from itertools import combinations

import datafusion

from memwal_sql.session.table_functions import FUNCTIONS, NAME_PARTS, TableName, whole_name

_SCAN = "TableScan: "
_SEARCHES = frozenset(f"{name}()" for function in FUNCTIONS for name in function.names)
# What stands for a plan of another library, as those of our tables are, and for no other one.
_MOUNTED = "FFI_ExecutionPlan"


def scans(frame: datafusion.DataFrame) -> list[str]:
    """The tables that a frame scans, subqueries included: their names as the query or a view says
    them, without quotes."""
    lines = frame.logical_plan().display_indent().splitlines()
    return [line.strip().removeprefix(_SCAN) for line in lines if line.strip().startswith(_SCAN)]


def is_search(scan: str) -> bool:
    """Whether it is a search, which does not say its table."""
    return scan in _SEARCHES


def names_of(scan: str) -> Iterator[TableName]:
    """The tables that a scan may be of: a dot ends a part of the name, or is in one."""
    dots = [place for place, one in enumerate(scan) if one == "."]
    for count in range(NAME_PARTS):
        for ends in combinations(dots, count):
            starts = [0, *(end + 1 for end in ends)]
            pairs = zip(starts, [*ends, len(scan)], strict=True)
            yield whole_name([scan[start:end] for start, end in pairs])


def reads_mounted(frame: datafusion.DataFrame) -> bool:
    """Whether it reads any table that is not DataFusion's own."""
    return _MOUNTED in frame.execution_plan().display_indent()
