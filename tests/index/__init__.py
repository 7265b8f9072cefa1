"""Indexes of the base table, made by us, by Lance, and by flushes."""
