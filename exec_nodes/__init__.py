"""Execution nodes: one operator a file, over Arrow and Lance; they know nothing of manifests."""
