"""Writer processes killed with SIGKILL, and what a whole table holds afterwards."""
