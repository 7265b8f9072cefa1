"""Writes that depend on the rows that are there: conditions, expressions, partial columns."""
