"""The queries of statements: their text, their tables as of one snapshot, their planning."""
