"""Checkpoints: their records and their life."""
