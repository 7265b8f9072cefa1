"""Garbage: what may be deleted, and its collection."""
