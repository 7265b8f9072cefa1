"""Writes that depend on existing rows: conditions, expressions, partial columns."""
