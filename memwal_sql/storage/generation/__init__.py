"""Flushed generations: writing them, their indexes and the index of their keys."""
