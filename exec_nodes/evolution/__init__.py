"""Columns of files written under earlier schemas, matched to the current ones by field id."""
