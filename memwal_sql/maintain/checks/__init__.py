"""The invariants of a table, one per file."""
