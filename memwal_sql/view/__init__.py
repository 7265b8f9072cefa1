"""Pictures of a table for people: as numbers, in a terminal, in a notebook."""
