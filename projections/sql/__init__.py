"""Projections in SQL tables."""
