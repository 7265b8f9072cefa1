"""The base of every node and source: errors, lazy values, tasks, hidden columns."""
