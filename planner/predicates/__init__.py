"""Filters: the parsed form, the values that can match, the text for Lance."""
