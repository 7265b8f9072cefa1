"""Plans of vector, full-text and hybrid searches."""
