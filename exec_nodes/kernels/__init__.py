"""Vectorised work on keys that nodes, sources and writers share: hashes, indexes, bloom filters."""
