"""What a filter says: its parsed form, the values that can match, its text for Lance."""
