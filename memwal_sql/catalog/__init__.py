"""Folders of tables as catalogs of a session."""
