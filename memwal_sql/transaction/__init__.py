"""Transactions over several tables."""
