"""Erase content permanently."""
