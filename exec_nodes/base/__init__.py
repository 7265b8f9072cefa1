"""What every node and source builds on: errors, lazy values, tasks, hidden columns."""
