"""The table handle, one file for each thing that a program does with it."""

from memwal_sql.table.table import Table

__all__ = ["Table"]
