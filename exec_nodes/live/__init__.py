"""Rows of a table that are kept in memory, one a key."""
