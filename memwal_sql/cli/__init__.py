"""The command `memwal`: an operator's view of a table, and the jobs that keep it in shape."""
