"""Requests, rounds and cost of each operation on an object store."""
