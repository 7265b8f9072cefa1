"""Rows that callers hand over, made into rows of the table or refused."""
