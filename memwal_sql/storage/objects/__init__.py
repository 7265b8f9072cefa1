"""Object stores: local, in memory, remote, and what each of them promises."""
