"""The queries of statements: their text, their snapshots, their planning."""
