"""The rows of a table in memory, brought up to date by looks: one row a key."""
