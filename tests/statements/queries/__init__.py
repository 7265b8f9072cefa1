"""Queries of `mw.sql`: the past, searches, distances."""
