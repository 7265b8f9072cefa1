"""Postings of texts, from Lance's index and from MemTables, and their analyzers."""
