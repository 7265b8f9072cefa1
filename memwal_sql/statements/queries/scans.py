"""What the plan of a query reads: names, views and queries of a WITH are resolved in it."""

import datafusion

from memwal_sql.session.table_functions import FUNCTIONS

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


def reads_mounted(frame: datafusion.DataFrame) -> bool:
    """Whether it reads any table that is not DataFusion's own."""
    return _MOUNTED in frame.execution_plan().display_indent()
