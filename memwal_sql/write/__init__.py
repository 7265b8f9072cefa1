"""The write side: claim, fence, append, MemTable, flush, routing."""
