"""The language of full-text queries: its tree, and how callers write it."""
