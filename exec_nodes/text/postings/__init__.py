"""Texts as postings: of Lance's index, of MemTables, and what analyzes them."""
