"""Content keys and encryption."""
