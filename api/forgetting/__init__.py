"""Erasing content for good."""
