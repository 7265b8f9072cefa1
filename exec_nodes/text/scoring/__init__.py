"""Queries over the postings of sources: matches, their scores, the best rows."""
