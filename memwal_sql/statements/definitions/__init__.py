"""Statements that make, change and drop tables and indexes."""
