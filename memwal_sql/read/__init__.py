"""Snapshots of a table: which sources a query reads, at which consistency."""
