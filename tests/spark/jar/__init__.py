"""The jar, and formats without registration."""
