"""What operations cost as a table grows."""
