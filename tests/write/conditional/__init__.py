"""Writes that depend on the rows that are there."""
