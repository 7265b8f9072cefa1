"""Turns rows of callers into rows of the table, or refuses them."""
