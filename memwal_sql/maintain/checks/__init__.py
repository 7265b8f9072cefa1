"""The invariants of a table, one a file."""
