"""The tables that a plan reads; names, views and queries of a WITH are resolved in it."""

import datafusion

from memwal_sql.session.table_functions import FUNCTIONS

_SCAN = "TableScan: "
_SEARCHES = frozenset(f"{name}()" for function in FUNCTIONS for name in function.names)
# Marks a plan of another library, such as those of MemWAL tables, and no other plan.
_MOUNTED = "FFI_ExecutionPlan"


def scans(frame: datafusion.DataFrame) -> list[str]:
    """The names, without quotes, of the tables that a frame scans, subqueries included, as the
    query or a view writes them."""
    lines = frame.logical_plan().display_indent().splitlines()
    return [line.strip().removeprefix(_SCAN) for line in lines if line.strip().startswith(_SCAN)]


def is_search(scan: str) -> bool:
    """Whether a scan is a search, which does not show its table."""
    return scan in _SEARCHES


def reads_mounted(frame: datafusion.DataFrame) -> bool:
    """Whether a frame reads any table that is not DataFusion's own."""
    return _MOUNTED in frame.execution_plan().display_indent()
