"""Our own records beside the table: its format and incarnation, the watermarks of gc."""
