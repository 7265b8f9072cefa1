"""Columns of files written under earlier schemas, matched to those of now by field id."""
