"""Object stores: local, in memory, remote, and the promises of each."""
