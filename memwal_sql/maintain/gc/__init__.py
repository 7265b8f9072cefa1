"""Garbage: the files that may be deleted, and their collection."""
