"""Vectorised work on Arrow columns: casts, validation, nested fields, filtering by masks."""
