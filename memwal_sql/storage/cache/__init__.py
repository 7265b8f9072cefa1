"""Copies on a local disk of what never changes in an object store."""
