"""Tables that pylance's native MemWAL and ours both read and write."""
