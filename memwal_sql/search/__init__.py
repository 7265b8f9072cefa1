"""Searches as users ask for them, the same for the table's methods and for SQL."""
